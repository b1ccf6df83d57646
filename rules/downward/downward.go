// Package downward tells pods about themselves: fields of a pod and amounts of its containers, as text for variables
// and files (DOWN-1, DOWN-2).
//
// It guarantees the text of Kubernetes, errors included; test/oracle compares it over random pods. It knows only what
// a pod says of itself. Addresses, and what containers may use of a node, come from who knows the node.
package downward

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/resources"
)

// Field returns a field of a pod's metadata by its path, such as "metadata.labels['key']".
func Field(m *metav1.ObjectMeta, path string) (string, error) {
	if name, key, ok := subscript(path); ok {
		switch name {
		case "metadata.annotations":
			return m.GetAnnotations()[key], nil
		case "metadata.labels":
			return m.GetLabels()[key], nil
		default:
			return "", fmt.Errorf("fieldPath %q does not support subscript", path)
		}
	}
	switch path {
	case "metadata.annotations":
		return lines(m.GetAnnotations()), nil
	case "metadata.labels":
		return lines(m.GetLabels()), nil
	case "metadata.name":
		return m.GetName(), nil
	case "metadata.namespace":
		return m.GetNamespace(), nil
	case "metadata.uid":
		return m.GetUid(), nil
	default:
		return "", fmt.Errorf("unsupported fieldPath: %v", path)
	}
}

// subscript takes apart a path like metadata.labels['key'].
func subscript(path string) (name, key string, ok bool) {
	rest, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	name, key, ok = strings.Cut(rest, "['")
	return name, key, ok && name != ""
}

// lines writes key="escaped value", one a line, in the order of the keys, without a line end after the last.
func lines(m map[string]string) string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var text []byte
	for i, key := range keys {
		if i > 0 {
			text = append(text, '\n')
		}
		text = append(append(text, key...), '=')
		text = strconv.AppendQuote(text, m[key])
	}
	return string(text)
}

// Container returns the container or init container of a pod that has a name.
func Container(spec *corev1.PodSpec, name string) (*corev1.Container, error) {
	for _, list := range [...][]*corev1.Container{spec.GetContainers(), spec.GetInitContainers()} {
		for _, c := range list {
			if c.GetName() == name {
				return c, nil
			}
		}
	}
	return nil, fmt.Errorf("container %s not found", name)
}

// Amount returns an amount of a container, such as "limits.cpu", in units of the selector's divisor, rounded up. What
// of processor, memory and storage is not limited is limited by what the node can give, as far as that is known.
func Amount(c *corev1.Container, s *corev1.ResourceFieldSelector, node resources.List) (string, error) {
	kind, name, _ := strings.Cut(s.GetResource(), ".")
	shared := name == resources.CPU || name == resources.Memory || name == resources.EphemeralStorage
	if kind != "limits" && kind != "requests" || !shared && !resources.IsHugePages(name) {
		return "", fmt.Errorf("unsupported container resource : %v", s.GetResource())
	}
	from := c.GetResources().GetRequests()
	if kind == "limits" {
		from = c.GetResources().GetLimits()
	}
	amount, ok := resources.ListOf(from).Get(name)
	if kind == "limits" && shared && (!ok || amount.IsZero()) {
		amount, _ = node.Get(name)
	}
	divisor, err := value.Quantity(s.GetDivisor())
	if err != nil || divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	n, d := amount.Value(), divisor.Value()
	if name == resources.CPU {
		n, d = amount.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt(int64(math.Ceil(float64(n)/float64(d))), 10), nil
}

// Node returns what containers of a pod that have no limit are limited by: what the node can give, or less when the
// pod as a whole is limited.
func Node(spec *corev1.PodSpec, allocatable resources.List) resources.List {
	limits := resources.ListOf(spec.GetResources().GetLimits())
	var out resources.List
	for i, a := range allocatable {
		if a.Name != resources.CPU && a.Name != resources.Memory {
			continue
		}
		limit, ok := limits.Get(a.Name)
		if !ok || limit.IsZero() {
			continue
		}
		if out == nil {
			out = slices.Clone(allocatable)
		}
		out[i].Quantity = limit
	}
	if out == nil {
		return allocatable
	}
	return out
}
