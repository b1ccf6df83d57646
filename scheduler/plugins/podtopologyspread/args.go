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

// Args are the constraints of pods that have none themselves and belong to a Service or workload (SPREAD-4).
type Args struct {
	DefaultConstraints []*corev1.TopologySpreadConstraint `json:"defaultConstraints"`
	// DefaultingType is System or List; empty means System.
	DefaultingType string `json:"defaultingType"`
}

// validate lists everything that is wrong, each with the name of its field.
func (a Args) validate() error {
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
		validateConstraint(c, func(field, format string, args ...any) { add(at+field, format, args...) })
		s := sort{c.GetTopologyKey(), c.GetWhenUnsatisfiable()}
		if seen[s] {
			add(at, "%s, %s is listed twice", s.key, s.action)
		}
		seen[s] = true
	}
	return errors.Join(errs...)
}

// validateConstraint checks one as it would be checked in a pod. What would have no effect is refused, too.
func validateConstraint(c *corev1.TopologySpreadConstraint, add func(field, format string, args ...any)) {
	if c.GetMaxSkew() < 1 {
		add(".maxSkew", "%d is not more than 0", c.GetMaxSkew())
	}
	if problems := validation.IsQualifiedName(c.GetTopologyKey()); len(problems) > 0 {
		add(".topologyKey", "%q is not the name of a label: %s", c.GetTopologyKey(), problems[0])
	}
	w := c.GetWhenUnsatisfiable()
	if w != "DoNotSchedule" && w != "ScheduleAnyway" {
		add(".whenUnsatisfiable", "%q is neither DoNotSchedule nor ScheduleAnyway", w)
	}
	if c.GetLabelSelector() != nil {
		add(".labelSelector", "must not be set: it follows from each pod's Services and workload")
	}
	if len(c.GetMatchLabelKeys()) > 0 {
		add(".matchLabelKeys", "have no effect here: which pods count follows from each pod's Services and workload")
	}
	switch {
	case c.MinDomains == nil:
	case c.GetMinDomains() < 1:
		add(".minDomains", "%d is not more than 0", c.GetMinDomains())
	case w == "ScheduleAnyway":
		add(".minDomains", "has no effect with ScheduleAnyway")
	}
	validatePolicy(".nodeAffinityPolicy", c.NodeAffinityPolicy, add)
	validatePolicy(".nodeTaintsPolicy", c.NodeTaintsPolicy, add)
}

func validatePolicy(field string, policy *string, add func(field, format string, args ...any)) {
	if policy != nil && *policy != "Honor" && *policy != "Ignore" {
		add(field, "%q is neither Honor nor Ignore", *policy)
	}
}
