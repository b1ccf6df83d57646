package histories

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// owners are histories of objects that own each other, and are deleted in every way that there is.
func owners() map[string]kind {
	maps := core("configmaps")
	name := func(r *rand.Rand) string { return fmt.Sprint("c", r.IntN(8)) }
	// references name some owners, of which some are not there or have gone.
	references := func(t *testing.T, r *rand.Rand, w *world) []any {
		list := []any{}
		all := w.list(t, maps)
		for i := range r.IntN(3) {
			ref := fields{"apiVersion": "v1", "kind": "ConfigMap", "blockOwnerDeletion": r.IntN(2) == 0}
			if k := r.IntN(9); k < len(all) && all[k].GetName() != "kube-root-ca.crt" {
				ref["name"], ref["uid"] = all[k].GetName(), string(all[k].GetUID())
			} else if r.IntN(4) == 0 {
				ref["name"], ref["uid"] = "never", fmt.Sprintf("00000000-0000-0000-0000-00000000000%d", i)
			} else {
				continue
			}
			if len(list) == 0 || list[0].(fields)["uid"] != ref["uid"] {
				list = append(list, ref)
			}
		}
		return list
	}
	made := step{"one made", func(t *testing.T, r *rand.Rand, w *world) {
		for range 1 + r.IntN(4) {
			n := name(r)
			if w.has(t, maps, n) {
				continue
			}
			m := fields{"name": n, "ownerReferences": references(t, r, w)}
			if r.IntN(5) == 0 {
				m["finalizers"] = []any{"example.com/hold"}
			}
			w.create(t, maps, fields{"apiVersion": "v1", "kind": "ConfigMap", "metadata": m})
		}
	}}
	deleted := step{"one deleted", func(t *testing.T, r *rand.Rand, w *world) {
		how := one(r, v1.DeletePropagationBackground, v1.DeletePropagationForeground,
			v1.DeletePropagationOrphan).(v1.DeletionPropagation)
		w.remove(t, maps, name(r), v1.DeleteOptions{PropagationPolicy: &how})
	}}
	return map[string]kind{"owners": {
		controllers: []string{"garbage-collector"}, nodes: -1,
		begin: made.do,
		steps: []step{made, made, made, deleted, deleted,
			{"one let go", func(t *testing.T, r *rand.Rand, w *world) {
				n := name(r)
				for _, o := range w.list(t, maps) {
					if o.GetName() == n {
						left := []any{}
						for _, f := range o.GetFinalizers() {
							if f != "example.com/hold" {
								left = append(left, f)
							}
						}
						w.patch(t, maps, n, fields{"metadata": fields{"finalizers": left}})
					}
				}
			}},
			{"one given other owners", func(t *testing.T, r *rand.Rand, w *world) {
				w.patch(t, maps, name(r), fields{"metadata": fields{"ownerReferences": references(t, r, w)}})
			}},
		},
		shown: []shown{{resource: maps, named: true, paths: []string{"metadata.ownerReferences", "metadata.finalizers"}}},
	}}
}
