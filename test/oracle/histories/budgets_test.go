package histories

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// budgets are histories of PodDisruptionBudgets over pods of several owners, or of none.
func budgets() map[string]kind {
	resource := schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}
	scales := []step{scaled(apps("deployments")), scaled(apps("statefulsets")), scaled(core("replicationcontrollers"))}
	spec := func(r *rand.Rand) fields {
		s := fields{"minAvailable": nil, "maxUnavailable": nil,
			"unhealthyPodEvictionPolicy": one(r, "IfHealthyBudget", "AlwaysAllow")}
		s[fmt.Sprint(one(r, "minAvailable", "maxUnavailable"))] = one(r, int64(0), int64(1), int64(2), "30%", "50%", "100%")
		return s
	}
	budget := func(r *rand.Rand, name string) fields {
		s := spec(r)
		for _, field := range []string{"minAvailable", "maxUnavailable"} {
			if s[field] == nil {
				delete(s, field)
			}
		}
		s["selector"] = one(r, fields{"matchLabels": fields{"app": "w"}}, fields{},
			fields{"matchExpressions": []any{fields{"key": "app", "operator": "In", "values": []any{"w", "other"}}}})
		return fields{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": fields{"name": name}, "spec": s}
	}
	return map[string]kind{"PodDisruptionBudget": {
		controllers: []string{"disruption"}, nodes: 4, overlooked: &resource, // of the budgets over one pod
		begin: func(t *testing.T, r *rand.Rand, w *world) {
			w.create(t, resource, budget(r, "b0"))
			for _, kind := range []string{"Deployment", "StatefulSet"} {
				if r.IntN(2) == 0 {
					m := manifest(kind, fields{"replicas": int64(r.IntN(6))})
					w.create(t, apps(map[string]string{"Deployment": "deployments", "StatefulSet": "statefulsets"}[kind]), m)
				}
			}
			m := manifest("ReplicationController", fields{"replicas": int64(1 + r.IntN(5)), "selector": fields{"app": "other"}})
			m["apiVersion"] = "v1"
			at(m, "spec", "template", "metadata").(fields)["labels"] = fields{"app": "other"}
			w.create(t, core("replicationcontrollers"), m)
		},
		steps: append(scales, podDeleted, podDeleted, podOverdue, relabelled,
			step{"a pod evicted", func(t *testing.T, r *rand.Rand, w *world) {
				list := w.active(t)
				if len(list) == 0 {
					return
				}
				name := list[r.IntN(len(list))].GetName()
				eviction := &unstructured.Unstructured{Object: fields{"apiVersion": "policy/v1", "kind": "Eviction",
					"metadata": fields{"name": name, "namespace": "default"}}}
				// A refusal is an answer too: it shows in how many pods are deleted.
				_, _ = w.in(pods).Create(t.Context(), eviction, v1.CreateOptions{}, name, "eviction")
			}},
			step{"a pod of nobody", func(t *testing.T, r *rand.Rand, w *world) {
				name := fmt.Sprint("nobody-", r.IntN(2))
				if !w.has(t, pods, name) {
					w.create(t, pods, fields{"apiVersion": "v1", "kind": "Pod",
						"metadata": fields{"name": name, "labels": fields{"app": "w"}},
						"spec":     template(1)["spec"]})
				}
			}},
			step{"a budget edited", func(t *testing.T, r *rand.Rand, w *world) {
				w.patch(t, resource, fmt.Sprint("b", r.IntN(2)), fields{"spec": spec(r)})
			}},
			step{"a budget deleted or made", func(t *testing.T, r *rand.Rand, w *world) {
				if name := fmt.Sprint("b", r.IntN(2)); w.has(t, resource, name) {
					w.remove(t, resource, name, v1.DeleteOptions{})
				} else {
					w.create(t, resource, budget(r, name))
				}
			}}),
		shown: []shown{{resource: resource, named: true, paths: []string{"spec", "status"}}},
	}}
}
