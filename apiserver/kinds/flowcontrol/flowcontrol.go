// Package flowcontrol describes the kinds of flowcontrol.apiserver.k8s.io, by which Kubernetes divides what its server
// does at once. They are kept as objects, for what is applied to every cluster, and are judged as Kubernetes does.
// Nothing in this version reads them, of which who makes one is warned: package apiserver/fair treats all users alike.
//
// Kubernetes keeps some of these objects itself, such as the schema and the level called exempt. Here nobody makes
// them, because they would say what is not so; who does has to make them as they are there.
package flowcontrol

import (
	"cmp"
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apiserver/validation"

	flowcontrolv1 "monoplane.dev/api/flowcontrol/v1"
)

// nothing is what whoever makes one of these objects is warned of.
const nothing = " have no effect in this version: all users take turns alike"

const (
	all = "*"
	// exempt is the one schema with precedence 1, and the one level whose requests never wait.
	exempt   = "exempt"
	catchAll = "catch-all"
)

// condition is a statement in a status.
type condition interface{ GetType() string }

// checkConditions checks the statements of a status: there is one of each type.
func checkConditions[C condition](f *validation.Faults, p *validation.Path, list []C) {
	seen := make(map[string]bool, len(list))
	for i, c := range list {
		at := p.Index(i).Child("type")
		if seen[c.GetType()] {
			f.Duplicate(at, c.GetType())
		}
		seen[c.GetType()] = true
		if c.GetType() == "" {
			f.Required(at, "")
		}
	}
}

// everything is the rule that fits all requests of these groups, once defaults are filled in.
func everything(groups ...string) []*flowcontrolv1.PolicyRulesWithSubjects {
	rule := &flowcontrolv1.PolicyRulesWithSubjects{
		ResourceRules: []*flowcontrolv1.ResourcePolicyRule{{
			Verbs: []string{all}, ApiGroups: []string{all}, Resources: []string{all}, ClusterScope: true,
			Namespaces: []string{all},
		}},
		NonResourceRules: []*flowcontrolv1.NonResourcePolicyRule{{
			Verbs: []string{all}, NonResourceURLs: []string{all},
		}},
	}
	for _, name := range groups {
		rule.Subjects = append(rule.Subjects, &flowcontrolv1.Subject{
			Kind: kindGroup, Group: &flowcontrolv1.GroupSubject{Name: name},
		})
	}
	return []*flowcontrolv1.PolicyRulesWithSubjects{rule}
}

// defaultZero is a default for a number whose zero says nothing.
func defaultZero(n *int32, value int32) { *n = cmp.Or(*n, value) }

// mustBe says that a part of an object, which is now as value says, has to be what it always is.
func mustBe(f *validation.Faults, p *validation.Path, value interface{ AppendJSON(b []byte) []byte }, text string) {
	f.Add(p, field.Invalid(nil, json.RawMessage(value.AppendJSON(nil)), text))
}
