package histories

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// workload is a kind whose histories are compared.
type workload struct {
	resource schema.GroupVersionResource
	// controllers are those that act on it.
	controllers []string
	// made is its first manifest.
	made func(*rand.Rand) map[string]any
	// owned are kinds that stand between it and its pods.
	owned []schema.GroupVersionResource
	// named says that the names of its pods are part of what is compared.
	named bool
	// steps are what can happen to it besides what happens to all.
	steps []step
}

// step is something that happens to a workload in both worlds alike.
type step struct {
	name string
	do   func(*testing.T, *rand.Rand, *world, workload)
}

func template(image int) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "w"}},
		"spec": map[string]any{
			"terminationGracePeriodSeconds": int64(1),
			"containers": []any{map[string]any{"name": "c", "image": fmt.Sprintf("image:%d", image),
				"readinessProbe": map[string]any{"exec": map[string]any{"command": []any{"ready"}}, "periodSeconds": int64(1)}}},
		},
	}
}

func manifest(kind string, spec map[string]any) map[string]any {
	full := map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{"app": "w"}}, "template": template(1),
	}
	for k, v := range spec {
		full[k] = v
	}
	return map[string]any{"apiVersion": "apps/v1", "kind": kind, "metadata": map[string]any{"name": "w"}, "spec": full}
}

func portion(r *rand.Rand) any { return []any{int64(1), int64(2), "25%", "50%"}[r.IntN(4)] }

var workloads = map[string]workload{
	"Deployment": {
		resource: apps("deployments"), controllers: []string{"deployment", "replicaset"},
		owned: []schema.GroupVersionResource{apps("replicasets")},
		made: func(r *rand.Rand) map[string]any {
			strategy := map[string]any{"type": "Recreate"}
			if r.IntN(4) > 0 {
				strategy = map[string]any{"type": "RollingUpdate",
					"rollingUpdate": map[string]any{"maxSurge": portion(r), "maxUnavailable": portion(r)}}
			}
			return manifest("Deployment", map[string]any{"replicas": int64(r.IntN(6)), "strategy": strategy,
				"revisionHistoryLimit": int64(r.IntN(3)), "minReadySeconds": int64(r.IntN(2))})
		},
		steps: []step{scaled, rolled, rolled, {"paused or resumed", func(t *testing.T, r *rand.Rand, w *world, k workload) {
			w.patch(t, k.resource, "w", map[string]any{"spec": map[string]any{"paused": r.IntN(3) == 0}})
		}}},
	},
	"ReplicaSet": {
		resource: apps("replicasets"), controllers: []string{"replicaset"},
		made: func(r *rand.Rand) map[string]any {
			return manifest("ReplicaSet", map[string]any{"replicas": int64(r.IntN(6))})
		},
		steps: []step{scaled},
	},
	"DaemonSet": {
		resource: apps("daemonsets"), controllers: []string{"daemonset"},
		owned: []schema.GroupVersionResource{revisions},
		made: func(r *rand.Rand) map[string]any {
			rolling := map[string]any{"maxUnavailable": portion(r)}
			if r.IntN(2) == 0 {
				rolling = map[string]any{"maxSurge": portion(r), "maxUnavailable": int64(0)}
			}
			return manifest("DaemonSet", map[string]any{
				"revisionHistoryLimit": int64(r.IntN(3)), "minReadySeconds": int64(r.IntN(2)),
				"updateStrategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": rolling},
			})
		},
		steps: []step{rolled, rolled},
	},
	"StatefulSet": {
		resource: apps("statefulsets"), controllers: []string{"statefulset"}, named: true,
		owned: []schema.GroupVersionResource{revisions},
		made: func(r *rand.Rand) map[string]any {
			return manifest("StatefulSet", map[string]any{
				"replicas": int64(r.IntN(5)), "serviceName": "w",
				"podManagementPolicy":  []any{"OrderedReady", "Parallel"}[r.IntN(2)],
				"revisionHistoryLimit": int64(r.IntN(3)), "minReadySeconds": int64(r.IntN(2)),
				"ordinals": map[string]any{"start": int64(r.IntN(3))},
			})
		},
		steps: []step{scaled, rolled, {"partitioned", func(t *testing.T, r *rand.Rand, w *world, k workload) {
			w.patch(t, k.resource, "w", map[string]any{"spec": map[string]any{
				"updateStrategy": map[string]any{"rollingUpdate": map[string]any{"partition": int64(r.IntN(5))}}}})
		}}},
	},
}

var (
	scaled = step{"scaled", func(t *testing.T, r *rand.Rand, w *world, k workload) {
		w.patch(t, k.resource, "w", map[string]any{"spec": map[string]any{"replicas": int64(r.IntN(7))}})
	}}
	rolled = step{"given another template", func(t *testing.T, r *rand.Rand, w *world, k workload) {
		w.patch(t, k.resource, "w", map[string]any{"spec": map[string]any{"template": template(1 + r.IntN(4))}})
	}}
	// What happens to every workload.
	common = []step{
		{"a pod deleted", func(t *testing.T, r *rand.Rand, w *world, k workload) {
			list := w.byAge(t)
			if len(list) > 0 {
				w.remove(t, list[r.IntN(len(list))].GetName())
			}
		}},
		{"all pods deleted", func(t *testing.T, _ *rand.Rand, w *world, _ workload) {
			for _, p := range w.byAge(t) {
				w.remove(t, p.GetName())
			}
		}},
		{"a pod past its deadline", func(t *testing.T, r *rand.Rand, w *world, _ workload) {
			list := w.byAge(t)
			if len(list) == 0 {
				return
			}
			p := list[r.IntN(len(list))]
			w.patch(t, pods, p.GetName(), map[string]any{"spec": map[string]any{"activeDeadlineSeconds": int64(1)}})
		}},
	}
)

// byAge returns the pods that have not ended, those of the same template next to each other, as far as both worlds can
// tell them apart.
func (w *world) byAge(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	list := slices.DeleteFunc(w.list(t, pods), func(p unstructured.Unstructured) bool {
		return at(p.Object, "status", "phase") == "Failed"
	})
	slices.SortFunc(list, func(a, b unstructured.Unstructured) int {
		return strings.Compare(image(a.Object, "spec")+a.GetName(), image(b.Object, "spec")+b.GetName())
	})
	return list
}

func (w *world) remove(t *testing.T, pod string) {
	t.Helper()
	if err := w.in(pods).Delete(t.Context(), pod, v1.DeleteOptions{}); err != nil {
		t.Fatalf("%s: %v", w.name, err)
	}
}

func image(o map[string]any, path ...string) string {
	list, _ := at(o, append(path, "containers")...).([]any)
	if len(list) == 0 {
		return ""
	}
	c, _ := list[0].(map[string]any)
	return fmt.Sprint(c["image"])
}

// counts are the fields of a status that both worlds must have alike.
var counts = []string{"replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "unavailableReplicas",
	"currentReplicas", "fullyLabeledReplicas", "collisionCount", "currentNumberScheduled", "desiredNumberScheduled",
	"numberMisscheduled", "numberReady", "numberAvailable", "numberUnavailable", "updatedNumberScheduled"}

// describe says how a world stands, without what differs between any two: names, times and uids. quiet is false while
// something is on its way.
func (w *world) describe(t *testing.T, k workload) (text string, quiet bool) {
	t.Helper()
	quiet = true
	var lines []string
	for _, resource := range append([]schema.GroupVersionResource{k.resource}, k.owned...) {
		for _, o := range w.list(t, resource) {
			var b strings.Builder
			fmt.Fprintf(&b, "%s revision=%v image=%s wanted=%d", o.GetKind(),
				o.GetAnnotations()["deployment.kubernetes.io/revision"], image(o.Object, "spec", "template", "spec"),
				number(o.Object, "spec", "replicas"))
			if o.GetKind() == "ControllerRevision" {
				fmt.Fprintf(&b, " number=%d %s", number(o.Object, "revision"), image(o.Object, "data", "spec", "template", "spec"))
			}
			for _, name := range counts {
				fmt.Fprintf(&b, " %s=%d", name, number(o.Object, "status", name))
			}
			var conditions []string
			list, _ := at(o.Object, "status", "conditions").([]any)
			for _, c := range list {
				c, _ := c.(map[string]any)
				conditions = append(conditions, fmt.Sprintf(" %v=%v(%v)", c["type"], c["status"], c["reason"]))
			}
			slices.Sort(conditions)
			b.WriteString(strings.Join(conditions, ""))
			lines = append(lines, b.String())
			if o.GetKind() == "ControllerRevision" {
				continue
			}
			there := number(o.Object, "status", "replicas")
			if o.GetKind() == "DaemonSet" {
				there = number(o.Object, "status", "currentNumberScheduled")
			}
			if number(o.Object, "status", "observedGeneration") != o.GetGeneration() || there != w.podsOf(t, o) {
				quiet = false
			}
		}
	}
	for _, p := range w.list(t, pods) {
		line := fmt.Sprintf("Pod %v %s ready=%s", at(p.Object, "status", "phase"), image(p.Object, "spec"),
			condition(p.Object, "Ready"))
		if k.named {
			line += " " + p.GetName()
		}
		lines = append(lines, line)
		ended := at(p.Object, "status", "phase") == "Failed"
		if p.GetDeletionTimestamp() != nil || !ended && (condition(p.Object, "Ready") != "True" ||
			at(p.Object, "spec", "activeDeadlineSeconds") != nil) {
			quiet = false
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	lines = append(lines, fmt.Sprintf("pods made %d, deleted %d", len(w.made), len(w.deleted)))
	return tally(lines), quiet
}

// podsOf returns how many pods that have not ended belong to a workload, directly or not.
func (w *world) podsOf(t *testing.T, o unstructured.Unstructured) int64 {
	t.Helper()
	n := int64(0)
	for _, p := range w.byAge(t) {
		for _, owner := range p.GetOwnerReferences() {
			if owner.UID == o.GetUID() || o.GetKind() == "Deployment" {
				n++
			}
		}
	}
	return n
}

// The same history leaves the same in both worlds, step by step. spec: WORK-1
func TestHistories(t *testing.T) {
	r := random(t)
	for name, k := range workloads {
		t.Run(name, func(t *testing.T) {
			for i := range *count {
				t.Run(fmt.Sprint(i), func(t *testing.T) { play(t, r.Uint64(), k) })
			}
		})
	}
}

func play(t *testing.T, history uint64, k workload) {
	worlds := newWorlds(t, k.controllers...)
	r := rand.New(rand.NewPCG(history, 1))
	all := append(slices.Clone(k.steps), common...)
	log := []string{"made"}
	manifest := k.made(r)
	for _, w := range worlds {
		w.create(t, k.resource, manifest)
	}
	for range *steps {
		compare(t, worlds, k, log)
		s, choice := all[r.IntN(len(all))], r.Uint64()
		log = append(log, s.name)
		for _, w := range worlds {
			s.do(t, rand.New(rand.NewPCG(choice, 1)), w, k)
		}
	}
	compare(t, worlds, k, log)
}

// compare waits until both worlds stand alike with nothing on its way.
func compare(t *testing.T, worlds []*world, k workload, log []string) {
	t.Helper()
	var texts [2]string
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		quiet := true
		for i, w := range worlds {
			text, still := w.describe(t, k)
			texts[i], quiet = text, quiet && still
		}
		if quiet && texts[0] == texts[1] {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %s (quiet: %v)\n%s has\n%s\n\n%s has\n%s", strings.Join(log, ", "), quiet,
				worlds[0].name, texts[0], worlds[1].name, texts[1])
		}
	}
}
