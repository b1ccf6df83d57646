package payload

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/resources"
)

// Node are facts of the node that a pod's files can tell.
type Node struct {
	// Allocatable is what pods of the node can have: what a container without a limit is limited by.
	Allocatable resources.List
}

// Downward returns files with fields of the pod and resources of its containers. spec: DOWN-1, DOWN-2
func Downward(p *corev1.Pod, items []*corev1.DownwardAPIVolumeFile, mode *int32, node Node) (Payload, error) {
	files := make(Payload, len(items))
	var wrong []error
	for _, item := range items {
		file := File{Mode: modeOf(item.Mode, modeOf(mode, defaultMode)), Data: []byte{}}
		var text string
		var err error
		switch {
		case item.GetFieldRef() != nil:
			text, err = field(p, item.GetFieldRef().GetFieldPath())
		case item.GetResourceFieldRef() != nil:
			text, err = resourceField(p, item.GetResourceFieldRef(), node)
		}
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		file.Data = []byte(text)
		files[clean(item.GetPath())] = file
	}
	if len(wrong) > 0 {
		return nil, join(wrong)
	}
	return files, nil
}

// field returns a field of the pod's metadata as text.
func field(p *corev1.Pod, of string) (string, error) {
	meta := p.GetMetadata()
	if rest, ok := strings.CutSuffix(of, "']"); ok {
		if where, key, ok := strings.Cut(rest, "['"); ok && where != "" {
			switch where {
			case "metadata.labels":
				return meta.GetLabels()[key], nil
			case "metadata.annotations":
				return meta.GetAnnotations()[key], nil
			default:
				return "", fmt.Errorf("fieldPath %q does not support subscript", of)
			}
		}
	}
	switch of {
	case "metadata.labels":
		return lines(meta.GetLabels()), nil
	case "metadata.annotations":
		return lines(meta.GetAnnotations()), nil
	case "metadata.name":
		return meta.GetName(), nil
	case "metadata.namespace":
		return meta.GetNamespace(), nil
	case "metadata.uid":
		return meta.GetUid(), nil
	default:
		return "", fmt.Errorf("unsupported fieldPath: %v", of)
	}
}

// lines writes key="escaped-value", one a line, in the order of the keys, without a line end after the last.
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

// resourceField returns a request or limit of a container in units of its divisor, rounded up. A missing limit of
// processor, memory or storage is what the node can give.
func resourceField(p *corev1.Pod, f *corev1.ResourceFieldSelector, node Node) (string, error) {
	at := slices.IndexFunc(every(p), func(c *corev1.Container) bool { return c.GetName() == f.GetContainerName() })
	if at < 0 {
		return "", fmt.Errorf("container %s not found", f.GetContainerName())
	}
	says := every(p)[at].GetResources()
	kind, name, _ := strings.Cut(f.GetResource(), ".")
	from := says.GetRequests()
	if kind == "limits" {
		from = says.GetLimits()
	}
	overcommitted := name == resources.CPU || name == resources.Memory || name == "ephemeral-storage"
	if kind != "limits" && kind != "requests" || !overcommitted && !resources.IsHugePages(name) {
		return "", fmt.Errorf("unsupported container resource : %v", f.GetResource())
	}
	amount, ok := resources.ListOf(from).Get(name)
	if kind == "limits" && overcommitted && (!ok || amount.IsZero()) {
		amount, _ = node.Allocatable.Get(name)
	}
	divisor, err := resource.ParseQuantity(f.GetDivisor().GetString_())
	if err != nil || divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	n, d := amount.Value(), divisor.Value()
	if name == resources.CPU {
		n, d = amount.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt(int64(math.Ceil(float64(n)/float64(d))), 10), nil
}
