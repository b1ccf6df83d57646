package lifecycle

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// resize returns the patch by which a container asks for amounts such as "cpu=20m".
func (s *Scenario) resize(container string, amounts []string) []byte {
	requests, limits := map[string]string{}, map[string]string{}
	list := "containers"
	for _, c := range s.containers() {
		if c.Name != container {
			continue
		}
		if slices.ContainsFunc(s.Pod.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == container }) {
			list = "initContainers"
		}
		for _, a := range amounts {
			name, amount, _ := strings.Cut(a, "=")
			requests[name] = amount
			if _, limited := c.Resources.Limits[corev1.ResourceName(name)]; limited {
				limits[name] = amount
			}
		}
	}
	resources := map[string]any{"requests": requests}
	if len(limits) > 0 {
		resources["limits"] = limits
	}
	text, err := json.Marshal(map[string]any{"spec": map[string]any{list: []any{map[string]any{
		"name": container, "resources": resources,
	}}}})
	if err != nil {
		panic(err) // never: all of it is text
	}
	return text
}

// resized reports whether all containers have what they ask for, and the pod says so.
func resized(p *corev1.Pod) bool {
	if p.Status.ObservedGeneration != p.Generation || slices.ContainsFunc(p.Status.Conditions,
		func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress
		}) {
		return false
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		has := status(p, c.Name).Resources
		if has == nil || !same(has.Requests, c.Resources.Requests) || !same(has.Limits, c.Resources.Limits) {
			return false
		}
	}
	return true
}

func same(a, b corev1.ResourceList) bool {
	for name, q := range a {
		if o, ok := b[name]; !ok || q.Cmp(o) != 0 {
			return false
		}
	}
	return len(a) == len(b)
}

// amounts are the requests in force of a container, in order.
func amounts(s corev1.ContainerStatus) []string {
	if s.Resources == nil {
		return nil
	}
	var out []string
	for name, q := range s.Resources.Requests {
		out = append(out, string(name)+"="+q.String())
	}
	slices.Sort(out)
	return out
}
