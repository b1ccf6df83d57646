package apiserver_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/warning"

	flowcontrolv1 "monoplane.dev/api/flowcontrol/v1"
	flowcontrolv1rpc "monoplane.dev/api/flowcontrol/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

func newFlowSchema(name string) *flowcontrolv1.FlowSchema {
	return &flowcontrolv1.FlowSchema{
		Metadata: &metav1.ObjectMeta{Name: name},
		Spec: &flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: &flowcontrolv1.PriorityLevelConfigurationReference{Name: "batch"},
			Rules: []*flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []*flowcontrolv1.Subject{{Kind: "User", User: &flowcontrolv1.UserSubject{Name: "ada"}}},
				ResourceRules: []*flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"list"}, ApiGroups: []string{"*"}, Resources: []string{"pods"},
					Namespaces: []string{"default"},
				}},
			}},
		},
	}
}

// spec: OBJ-1, OBJ-3
func TestFlowSchemasAreKeptWithAWarning(t *testing.T) {
	schemas := flowcontrolv1rpc.NewFlowSchemasClient(start(t).admin().conn)
	if there := must(schemas.List(ctx(t), &metav1.ListRequest{}))(t); len(there.Items) > 0 {
		t.Errorf("schemas that nobody made: %v", there.Items)
	}
	var header metadata.MD
	made := must(schemas.Create(ctx(t), &flowcontrolv1rpc.CreateFlowSchemaRequest{Object: newFlowSchema("batch")},
		grpc.Header(&header)))(t)
	if warned := strings.Join(header.Get(warning.MetadataKey), "\n"); !strings.Contains(warned,
		"FlowSchemas have no effect in this version") {
		t.Errorf("warned of %q", warned)
	}
	if made.Spec.MatchingPrecedence != 1000 || made.Metadata.Generation != 1 {
		t.Errorf("created: %v", made)
	}

	next := clone(made)
	next.Status = &flowcontrolv1.FlowSchemaStatus{Conditions: []*flowcontrolv1.FlowSchemaCondition{
		{Type: "Dangling", Status: "True"}, {Type: "Dangling", Status: "False"},
	}}
	next.Spec.MatchingPrecedence = 5
	_, err := schemas.UpdateStatus(ctx(t), &flowcontrolv1rpc.UpdateFlowSchemaRequest{Object: next})
	wants(t, err, apierrors.Invalid, "status.conditions[1].type: Duplicate value: \"Dangling\"")
	next.Status.Conditions = next.Status.Conditions[:1]
	told := must(schemas.UpdateStatus(ctx(t), &flowcontrolv1rpc.UpdateFlowSchemaRequest{Object: next}))(t)
	if told.Spec.MatchingPrecedence != 1000 || len(told.Status.Conditions) != 1 || told.Metadata.Generation != 1 {
		t.Errorf("the status was told: %v", told)
	}
	next = clone(told)
	next.Spec.MatchingPrecedence, next.Status = 5, nil
	changed := must(schemas.Update(ctx(t), &flowcontrolv1rpc.UpdateFlowSchemaRequest{Object: next}))(t)
	if changed.Spec.MatchingPrecedence != 5 || len(changed.Status.Conditions) != 1 || changed.Metadata.Generation != 2 {
		t.Errorf("changed: %v", changed)
	}

	fixed := newFlowSchema("exempt")
	fixed.Spec.MatchingPrecedence = 1
	_, err = schemas.Create(ctx(t), &flowcontrolv1rpc.CreateFlowSchemaRequest{Object: fixed})
	wants(t, err, apierrors.Invalid, "spec of 'exempt' must equal the fixed value")
	_, err = schemas.Create(ctx(t), &flowcontrolv1rpc.CreateFlowSchemaRequest{Object: &flowcontrolv1.FlowSchema{
		Metadata: &metav1.ObjectMeta{Name: "empty"},
	}})
	wants(t, err, apierrors.Invalid,
		"spec.priorityLevelConfiguration.name: Required value: must reference a priority level")
}

// spec: OBJ-1, OBJ-3
func TestPriorityLevelsAreKeptWithAWarning(t *testing.T) {
	levels := flowcontrolv1rpc.NewPriorityLevelConfigurationsClient(start(t).admin().conn)
	level := &flowcontrolv1.PriorityLevelConfiguration{
		Metadata: &metav1.ObjectMeta{Name: "batch"},
		Spec: &flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: "Limited", Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				LimitResponse: &flowcontrolv1.LimitResponse{Type: "Queue", Queuing: &flowcontrolv1.QueuingConfiguration{}},
			},
		},
	}
	var header metadata.MD
	made := must(levels.Create(ctx(t), &flowcontrolv1rpc.CreatePriorityLevelConfigurationRequest{Object: level},
		grpc.Header(&header)))(t)
	if warned := strings.Join(header.Get(warning.MetadataKey), "\n"); !strings.Contains(warned,
		"PriorityLevelConfigurations have no effect in this version") {
		t.Errorf("warned of %q", warned)
	}
	l := made.Spec.Limited
	q := l.LimitResponse.Queuing
	if l.GetNominalConcurrencyShares() != 30 || l.LendablePercent == nil || q.Queues != 64 || q.HandSize != 8 ||
		q.QueueLengthLimit != 50 {
		t.Errorf("created: %v", made)
	}
	next := clone(made)
	next.Spec.Limited.LimitResponse.Queuing.HandSize = 11
	_, err := levels.Update(ctx(t), &flowcontrolv1rpc.UpdatePriorityLevelConfigurationRequest{Object: next})
	wants(t, err, apierrors.Invalid, "required entropy bits of deckSize 64 and handSize 11 should not be greater than 60")
	next.Metadata.Name = "other"
	next.Metadata.ResourceVersion = ""
	next.Spec.Type = "Exempt"
	_, err = levels.Create(ctx(t), &flowcontrolv1rpc.CreatePriorityLevelConfigurationRequest{Object: next})
	wants(t, err, apierrors.Invalid, "must be 'Exempt' if and only if `name` is 'exempt'")
}
