package histories

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// shown says what of a kind of objects is compared: these paths, their fields parted by dots.
type shown struct {
	resource schema.GroupVersionResource
	paths    []string
	// named says that their names are compared too.
	named bool
}

// different are fields that differ between any two clusters.
var different = []string{
	"uid", "resourceVersion", "creationTimestamp", "lastTransitionTime", "lastUpdateTime", "lastProbeTime",
	"lastHeartbeatTime", "startTime", "completionTime", "finishedAt", "startedAt", "lastSuccessfulTime",
	"pod-template-hash", "controller-revision-hash", "controller-uid", "batch.kubernetes.io/controller-uid",
	"currentRevision", "updateRevision",
	"endpoints.kubernetes.io/last-change-trigger-time", "clusterIP", "clusterIPs", "timeAdded",
	"pod-template-generation", "monoplane.dev/machine-key",
}

// describe says how a world stands, without what differs between any two: the names that controllers make up, times
// and uids.
func (w *world) describe(t *testing.T, k kind) string {
	t.Helper()
	var lines, names []string
	for _, s := range k.shown {
		for _, o := range w.list(t, s.resource) {
			line := o.GetKind()
			if s.named {
				line += " " + o.GetName()
			} else if cut := strings.LastIndexByte(o.GetName(), '-'); cut > 0 {
				names = append(names, o.GetName(), o.GetName()[:cut]+"-*")
			}
			if o.GetDeletionTimestamp() != nil {
				line += " (being deleted)"
			}
			if v1.GetControllerOf(&o) != nil && at(o.Object, "status", "observedGeneration") == o.GetGeneration() {
				// In how many writes its owner changed it is the owner's affair.
				at(o.Object, "status").(fields)["observedGeneration"] = "newest"
			}
			for _, path := range s.paths {
				// The annotation of what triggered the last change is there or not, by who was looked at when.
				if v := at(o.Object, strings.Split(path, ".")...); v != nil && text(v) != "{}" {
					line += fmt.Sprintf(" %s: %s", path, text(v))
				}
			}
			lines = append(lines, line)
		}
	}
	for _, p := range w.list(t, pods) {
		line := podText(p)
		if k.named {
			line += " " + p.GetName()
		} else if cut := strings.LastIndexByte(p.GetName(), '-'); cut > 0 {
			names = append(names, p.GetName(), p.GetName()[:cut]+"-*")
		}
		lines = append(lines, line)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	lines = append(lines, fmt.Sprintf("pods made %d, deleted %d", len(w.made), len(w.deleted)))
	made := strings.NewReplacer(names...)
	for i := range lines {
		lines[i] = made.Replace(lines[i])
	}
	return tally(lines)
}

// podText says of a pod what is compared of each.
func podText(p unstructured.Unstructured) string {
	phase, ready := at(p.Object, "status", "phase"), condition(p.Object, "Ready")
	if phase == "Pending" && ready == "" {
		ready = "False" // a pod that its node has never seen; here the loss of the node is said of it, too
	}
	line := fmt.Sprintf("Pod %v %s ready=%s", phase, image(p.Object, "spec"), ready)
	if p.GetDeletionTimestamp() != nil {
		line += " (being deleted)"
	}
	for _, path := range []string{"labels", "annotations", "finalizers"} {
		if v := at(p.Object, "metadata", path); v != nil {
			line += " " + text(v)
		}
	}
	if target := conditionText(p.Object, "DisruptionTarget"); target != "" {
		line += " " + target
	}
	return line
}

// text is a value as JSON, without what differs, and with the lists in which order means nothing in one order.
func text(v any) string {
	b, err := json.Marshal(plain(v))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			if !slices.Contains(different, key) {
				out[key] = plain(value)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		slices.SortStableFunc(out, func(a, b any) int { return strings.Compare(text(a), text(b)) })
		return out
	default:
		return v
	}
}

// image is that of the first container below a path.
func image(o fields, path ...string) string {
	list, _ := at(o, append(path, "containers")...).([]any)
	if len(list) == 0 {
		return ""
	}
	c, _ := list[0].(map[string]any)
	return fmt.Sprint(c["image"])
}

// condition is the status of a condition.
func condition(o fields, kind string) string {
	list, _ := at(o, "status", "conditions").([]any)
	for _, c := range list {
		if c, _ := c.(map[string]any); c["type"] == kind {
			return fmt.Sprint(c["status"])
		}
	}
	return ""
}

func conditionText(o fields, kind string) string {
	list, _ := at(o, "status", "conditions").([]any)
	for _, c := range list {
		if c, _ := c.(map[string]any); c["type"] == kind {
			return text(c)
		}
	}
	return ""
}

// tally tells how often each line is there.
func tally(lines []string) string {
	counts := map[string]int{}
	for _, l := range lines {
		counts[l]++
	}
	var out []string
	for _, l := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%d x %s", counts[l], l))
	}
	return strings.Join(out, "\n")
}
