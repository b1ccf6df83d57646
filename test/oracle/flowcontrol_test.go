package oracle

import (
	"math/rand/v2"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	of "monoplane.dev/api/flowcontrol/v1"
	ourflowcontrol "monoplane.dev/apiserver/kinds/flowcontrol"
)

// flowMeta is the identity of an object of the group, some of which have a name of Kubernetes' own.
func flowMeta(r *rand.Rand, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: mostly(r, []string{name, "exempt", "catch-all", "A"}), ResourceVersion: "1"}
}

func fewOf(r *rand.Rand, from ...string) []string {
	list := []string{mostly(r, from)}
	for range r.IntN(10) / 7 {
		list = append(list, pick(r, from))
	}
	if r.IntN(12) == 0 {
		return nil
	}
	return list
}

func flowSubject(r *rand.Rand) flowcontrolv1.Subject {
	s := flowcontrolv1.Subject{
		Kind: mostly(r, []flowcontrolv1.SubjectKind{"User", "Group", "ServiceAccount", "", "Other"}),
	}
	if s.Kind == "User" && r.IntN(10) > 0 || r.IntN(10) == 0 {
		s.User = &flowcontrolv1.UserSubject{Name: mostly(r, []string{"ada", "*", ""})}
	}
	if s.Kind == "Group" && r.IntN(10) > 0 || r.IntN(10) == 0 {
		s.Group = &flowcontrolv1.GroupSubject{Name: mostly(r, []string{"devs", "*", ""})}
	}
	if s.Kind == "ServiceAccount" && r.IntN(10) > 0 || r.IntN(10) == 0 {
		s.ServiceAccount = &flowcontrolv1.ServiceAccountSubject{
			Name: mostly(r, []string{"a", "*", "", "A", "a.b"}), Namespace: mostly(r, []string{"ns", "", "*", "a.b"}),
		}
	}
	return s
}

var flowVerbs = []string{"get", "*", "list", "proxy", "Get", "", "deletecollection"}

func randomFlowSchema(r *rand.Rand) *flowcontrolv1.FlowSchema {
	if r.IntN(10) == 0 {
		k := pick(r, bootstrap.MandatoryFlowSchemas).DeepCopy()
		k.ResourceVersion = "1"
		if r.IntN(2) == 0 {
			alter(r, &k.Spec, 1, nil)
		}
		return k
	}
	k := &flowcontrolv1.FlowSchema{ObjectMeta: flowMeta(r, "web")}
	k.Spec.PriorityLevelConfiguration.Name = mostly(r, []string{"level", "", "A", "a.b"})
	k.Spec.MatchingPrecedence = mostly(r, []int32{0, 1, 2, -1, 10000, 10001})
	if r.IntN(2) == 0 {
		k.Spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{
			Type: mostly(r, []flowcontrolv1.FlowDistinguisherMethodType{"ByUser", "ByNamespace", "", "Other"}),
		}
	}
	for range r.IntN(3) {
		rule := flowcontrolv1.PolicyRulesWithSubjects{}
		for range mostly(r, []int{1, 2, 0}) {
			rule.Subjects = append(rule.Subjects, flowSubject(r))
		}
		for range r.IntN(3) {
			rule.ResourceRules = append(rule.ResourceRules, flowcontrolv1.ResourcePolicyRule{
				Verbs: fewOf(r, flowVerbs...), APIGroups: fewOf(r, "apps", "*", ""), Resources: fewOf(r, "pods", "*", ""),
				ClusterScope: r.IntN(2) == 0, Namespaces: fewOf(r, "ns", "*", "", "A"),
			})
		}
		for range r.IntN(2) {
			rule.NonResourceRules = append(rule.NonResourceRules, flowcontrolv1.NonResourcePolicyRule{
				Verbs:           fewOf(r, flowVerbs...),
				NonResourceURLs: fewOf(r, "/healthz", "*", "/", "", "a", "/a b", "//", "/a/*", "/*/a", "/a*", "/*", "/*/*"),
			})
		}
		k.Spec.Rules = append(k.Spec.Rules, rule)
	}
	for range r.IntN(3) {
		k.Status.Conditions = append(k.Status.Conditions, flowcontrolv1.FlowSchemaCondition{
			Type: mostly(r, []flowcontrolv1.FlowSchemaConditionType{"Dangling", "", "Other"}), Status: "True",
		})
	}
	return k
}

func randomPriorityLevel(r *rand.Rand) *flowcontrolv1.PriorityLevelConfiguration {
	if r.IntN(10) == 0 {
		k := pick(r, bootstrap.MandatoryPriorityLevelConfigurations).DeepCopy()
		k.ResourceVersion = "1"
		if r.IntN(2) == 0 {
			alter(r, &k.Spec, 1, nil)
		}
		return k
	}
	k := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: flowMeta(r, "web")}
	if r.IntN(20) == 0 {
		k.Annotations = map[string]string{"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares": ""}
	}
	number := func(usual int32) *int32 {
		if r.IntN(2) == 0 {
			return nil
		}
		return ptr(mostly(r, []int32{usual, 0, -1, 100, 101}))
	}
	k.Spec.Type = mostly(r, []flowcontrolv1.PriorityLevelEnablement{"Limited", "Exempt", "", "Other"})
	if k.Spec.Type == "Limited" && r.IntN(10) > 0 || r.IntN(10) == 0 {
		k.Spec.Limited = &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: number(5), LendablePercent: number(10), BorrowingLimitPercent: number(10),
			LimitResponse: flowcontrolv1.LimitResponse{
				Type: mostly(r, []flowcontrolv1.LimitResponseType{"Queue", "Reject", "", "Other"}),
			},
		}
		if r.IntN(5) > 0 {
			k.Spec.Limited.LimitResponse.Queuing = &flowcontrolv1.QueuingConfiguration{
				Queues:           mostly(r, []int32{64, 0, -1, 1, 10_000_000, 10_000_001, 2}),
				HandSize:         mostly(r, []int32{6, 0, -1, 10, 11, 64, 65, 1}),
				QueueLengthLimit: mostly(r, []int32{50, 0, -1}),
			}
		}
	}
	if k.Spec.Type == "Exempt" && r.IntN(2) == 0 || r.IntN(10) == 0 {
		k.Spec.Exempt = &flowcontrolv1.ExemptPriorityLevelConfiguration{
			NominalConcurrencyShares: number(1), LendablePercent: number(1),
		}
	}
	for range r.IntN(3) {
		k.Status.Conditions = append(k.Status.Conditions, flowcontrolv1.PriorityLevelConfigurationCondition{
			Type: mostly(r, []flowcontrolv1.PriorityLevelConfigurationConditionType{"A", "", "B"}), Status: "True",
		})
	}
	return k
}

// Create and update are judged with the status that they take, which is none and the one that was there.
//
// spec: OBJ-3
func TestFlowSchemasAreJudgedAlike(t *testing.T) {
	warnedKind[*flowcontrolv1.FlowSchema, *of.FlowSchema]{
		topic: "flowschemas", random: randomFlowSchema,
		ours: func() *of.FlowSchema { return &of.FlowSchema{} }, fill: ourflowcontrol.DefaultFlowSchema,
		mine: ourflowcontrol.ValidateFlowSchema, change: ourflowcontrol.ValidateFlowSchemaUpdate,
		status: ourflowcontrol.ValidateFlowSchemaStatusUpdate,
	}.judge(t)
}

// spec: OBJ-3
func TestPriorityLevelsAreJudgedAlike(t *testing.T) {
	warnedKind[*flowcontrolv1.PriorityLevelConfiguration, *of.PriorityLevelConfiguration]{
		topic: "prioritylevelconfigurations", random: randomPriorityLevel,
		ours:   func() *of.PriorityLevelConfiguration { return &of.PriorityLevelConfiguration{} },
		fill:   ourflowcontrol.DefaultPriorityLevelConfiguration,
		mine:   ourflowcontrol.ValidatePriorityLevelConfiguration,
		change: ourflowcontrol.ValidatePriorityLevelConfigurationUpdate,
		status: ourflowcontrol.ValidatePriorityLevelConfigurationStatusUpdate,
	}.judge(t)
}
