package quota

import (
	"slices"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/object"
	"monoplane.dev/rules/resources"
)

// Unsaid says which containers of a pod do not say what a quota with these limits counts, such as "limits.cpu for:
// web"; empty when all do. Who limits cpu or memory has every container say how much it needs, unless the pod says it
// as a whole.
func Unsaid(hard Usage, o object.Object) string {
	p, ok := o.(*corev1.Pod)
	if !ok || wholePod(p.GetSpec()) {
		return ""
	}
	var missing []string
	for _, name := range hard.Names() {
		var silent []string
		for _, c := range slices.Concat(p.GetSpec().GetContainers(), p.GetSpec().GetInitContainers()) {
			if !says(c, name) {
				silent = append(silent, c.GetName())
			}
		}
		if len(silent) > 0 {
			slices.Sort(silent)
			missing = append(missing, name+" for: "+strings.Join(slices.Compact(silent), ","))
		}
	}
	return strings.Join(missing, "; ")
}

// wholePod says whether cpu, memory or huge pages are asked for the pod as a whole.
func wholePod(s *corev1.PodSpec) bool {
	for name := range s.GetResources().GetLimits() {
		if resources.ForPods(name) {
			return true
		}
	}
	return resources.ForWhole(s)
}

// says whether a container says how much it needs of what is limited as name; of anything but cpu and memory it need
// not.
func says(c *corev1.Container, name string) bool {
	amounts := c.GetResources().GetRequests()
	switch name {
	case resources.CPU, resources.Memory:
	case "requests.cpu", "requests.memory":
		name = strings.TrimPrefix(name, requestsPrefix)
	case "limits.cpu", "limits.memory":
		name, amounts = strings.TrimPrefix(name, limitsPrefix), c.GetResources().GetLimits()
	default:
		return true
	}
	_, ok := amounts[name]
	return ok
}
