package histories

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// lostNodes are histories of nodes that fall silent, come back, and are tainted, with pods that tolerate this or that.
func lostNodes() map[string]kind {
	const many = 6
	name := func(r *rand.Rand) string { return fmt.Sprint("node-", r.IntN(many)) }
	tolerations := map[string][]any{
		"patient": {fields{"key": "example.com/away", "operator": "Exists", "effect": "NoExecute",
			"tolerationSeconds": int64(100)}},
		"plain": {},
		"stays": {fields{"operator": "Exists"}},
	}
	fill := step{"pods made", func(t *testing.T, r *rand.Rand, w *world) {
		for i := range many {
			for which, list := range tolerations {
				pod := fmt.Sprintf("%s-%d", which, i)
				if !w.has(t, pods, pod) {
					w.create(t, pods, fields{"apiVersion": "v1", "kind": "Pod", "metadata": fields{"name": pod},
						"spec": fields{"nodeName": fmt.Sprint("node-", i), "tolerations": list,
							"terminationGracePeriodSeconds": int64(1),
							"containers":                    []any{fields{"name": "c", "image": "image:1"}}}})
				}
			}
		}
	}}
	tell := func(start bool) func(*testing.T, *rand.Rand, *world) {
		return func(t *testing.T, r *rand.Rand, w *world) {
			for range 1 + r.IntN(3) {
				var err error
				if start {
					_, err = w.cluster.StartNode(t.Context(), name(r))
				} else {
					_, err = w.cluster.StopNode(t.Context(), name(r))
				}
				if err != nil {
					t.Fatalf("%s: %v", w.name, err)
				}
			}
		}
	}
	return map[string]kind{"lost nodes": {
		controllers: []string{"node-lifecycle", "taint-eviction"}, nodes: many, named: true,
		begin: func(t *testing.T, r *rand.Rand, w *world) {
			for i := range many {
				w.patch(t, nodes, fmt.Sprint("node-", i), fields{"metadata": fields{"labels": fields{
					"topology.kubernetes.io/zone": fmt.Sprint("zone-", i%2)}}})
			}
			fill.do(t, r, w)
		},
		steps: []step{fill, fill, {"nodes silent", tell(false)}, {"nodes back", tell(true)}, {"nodes back", tell(true)},
			{"a node cordoned or not", func(t *testing.T, r *rand.Rand, w *world) {
				w.patch(t, nodes, name(r), fields{"spec": fields{"unschedulable": r.IntN(2) == 0}})
			}},
			{"a node tainted or not", func(t *testing.T, r *rand.Rand, w *world) {
				which, taint := name(r), fields{"key": "example.com/away", "value": "yes", "effect": "NoExecute"}
				tainted := r.IntN(2) == 0
				for _, o := range w.list(t, nodes) {
					if o.GetName() != which {
						continue
					}
					kept := []any{}
					before, _ := at(o.Object, "spec", "taints").([]any)
					for _, old := range before {
						if old.(fields)["key"] != taint["key"] {
							kept = append(kept, old)
						}
					}
					if tainted {
						kept = append(kept, taint)
					}
					w.patch(t, nodes, which, fields{"spec": fields{"taints": kept}})
				}
			}},
			{"left alone for long", func(_ *testing.T, r *rand.Rand, w *world) {
				if w.name == "Kubernetes" { // once, for both
					time.Sleep(time.Duration(1+r.IntN(9)) * time.Minute) // virtual
				}
			}},
		},
		shown: []shown{{resource: nodes, named: true, paths: []string{"spec.taints", "spec.unschedulable",
			"status.conditions"}}},
	}}
}
