package podtopologyspread

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// How the constraints of pods without any are chosen.
const (
	// System is Kubernetes' own choice, for pods of a Service or workload.
	System = "System"
	// List is the choice of the configuration.
	List = "List"
)

// Args are the constraints of pods that have none themselves (SPREAD-4). They are for pods of a Service or workload, which are
// not served yet: none may be listed until then.
type Args struct {
	DefaultConstraints []*corev1.TopologySpreadConstraint `json:"defaultConstraints"`
	// DefaultingType is System or List; empty means System.
	DefaultingType string `json:"defaultingType"`
}

// Validate lists everything that is wrong, each with the name of its field.
func (a Args) Validate() error {
	var errs []error
	add := func(field, format string, args ...any) { errs = append(errs, fmt.Errorf(field+": "+format, args...)) }
	switch a.DefaultingType {
	case "", System:
		if len(a.DefaultConstraints) > 0 {
			add("args.defaultingType", "must be %s when there are defaultConstraints", List)
		}
	case List:
	default:
		add("args.defaultingType", "%q is neither %s nor %s", a.DefaultingType, System, List)
	}
	type sort struct{ key, action string }
	seen := map[sort]bool{}
	for i, c := range a.DefaultConstraints {
		at := fmt.Sprintf("args.defaultConstraints[%d]", i)
		if c.GetMaxSkew() < 1 {
			add(at+".maxSkew", "%d is not more than 0", c.GetMaxSkew())
		}
		if problems := validation.IsQualifiedName(c.GetTopologyKey()); len(problems) > 0 {
			add(at+".topologyKey", "%q is not the name of a label: %s", c.GetTopologyKey(), problems[0])
		}
		if w := c.GetWhenUnsatisfiable(); w != "DoNotSchedule" && w != "ScheduleAnyway" {
			add(at+".whenUnsatisfiable", "%q is neither DoNotSchedule nor ScheduleAnyway", w)
		}
		if c.GetLabelSelector() != nil {
			add(at+".labelSelector", "must not be set: it follows from each pod's Services and workload")
		}
		s := sort{c.GetTopologyKey(), c.GetWhenUnsatisfiable()}
		if seen[s] {
			add(at, "%s, %s is listed twice", s.key, s.action)
		}
		seen[s] = true
	}
	if len(a.DefaultConstraints) > 0 {
		add("args.defaultConstraints", "have no effect here yet: they are for pods of Services and workloads, which are not served")
	}
	return errors.Join(errs...)
}
