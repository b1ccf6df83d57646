package histories

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// workload is the one object of a kind that keeps pods. Its name is w.
type workload struct {
	resource schema.GroupVersionResource
	// made is its first manifest.
	made func(*rand.Rand) object
	// controllers are those that act on it.
	controllers []string
	// owned are kinds that stand between it and its pods.
	owned []shown
	// named says that the names of its pods are compared.
	named bool
	steps []step
}

func (k workload) kind() kind {
	return kind{
		controllers: k.controllers, nodes: 4, named: k.named,
		begin: func(t *testing.T, r *rand.Rand, w *world) { w.create(t, k.resource, k.made(r)) },
		steps: append(k.steps, podDeleted, podsDeleted, podOverdue),
		shown: append([]shown{{resource: k.resource, paths: []string{"metadata.annotations", "spec", "status"}}}, k.owned...),
	}
}

func template(image int) object {
	return object{
		"metadata": object{"labels": object{"app": "w"}},
		"spec": object{
			"terminationGracePeriodSeconds": int64(1),
			"containers": []any{object{"name": "c", "image": fmt.Sprintf("image:%d", image),
				"readinessProbe": object{"exec": object{"command": []any{"ready"}}, "periodSeconds": int64(1)}}},
		},
	}
}

func manifest(kind string, spec object) object {
	full := object{"selector": object{"matchLabels": object{"app": "w"}}, "template": template(1)}
	for k, v := range spec {
		full[k] = v
	}
	return object{"apiVersion": "apps/v1", "kind": kind, "metadata": object{"name": "w"}, "spec": full}
}

func portion(r *rand.Rand) any { return []any{int64(1), int64(2), "25%", "50%"}[r.IntN(4)] }

// patched is a step that changes the spec of w.
func patched(resource schema.GroupVersionResource, name string, spec func(*rand.Rand) object) step {
	return step{name, func(t *testing.T, r *rand.Rand, w *world) {
		w.patch(t, resource, "w", object{"spec": spec(r)})
	}}
}

func scaled(resource schema.GroupVersionResource) step {
	return patched(resource, "scaled", func(r *rand.Rand) object { return object{"replicas": int64(r.IntN(7))} })
}

func rolled(resource schema.GroupVersionResource) step {
	return patched(resource, "given another template", func(r *rand.Rand) object {
		return object{"template": template(1 + r.IntN(4))}
	})
}

var (
	podDeleted = step{"a pod deleted", func(t *testing.T, r *rand.Rand, w *world) {
		if list := w.active(t); len(list) > 0 {
			w.remove(t, pods, list[r.IntN(len(list))].GetName(), v1.DeleteOptions{})
		}
	}}
	podsDeleted = step{"all pods deleted", func(t *testing.T, _ *rand.Rand, w *world) {
		for _, p := range w.active(t) {
			w.remove(t, pods, p.GetName(), v1.DeleteOptions{})
		}
	}}
	podOverdue = step{"a pod past its deadline", func(t *testing.T, r *rand.Rand, w *world) {
		if list := w.active(t); len(list) > 0 {
			w.patch(t, pods, list[r.IntN(len(list))].GetName(), object{"spec": object{"activeDeadlineSeconds": int64(1)}})
		}
	}}
)

func workloads() map[string]kind {
	deployments, replicaSets, daemonSets, statefulSets := apps("deployments"), apps("replicasets"), apps("daemonsets"),
		apps("statefulsets")
	history := []shown{{resource: revisions, paths: []string{"revision", "data.spec.template.spec.containers"}}}
	replicas := func(kind string) func(*rand.Rand) object {
		return func(r *rand.Rand) object {
			return manifest(kind, object{"replicas": int64(r.IntN(6)), "minReadySeconds": int64(r.IntN(2))})
		}
	}
	return map[string]kind{
		"Deployment": workload{
			resource: deployments, controllers: []string{"deployment", "replicaset"},
			owned: []shown{{resource: replicaSets, paths: []string{"metadata.annotations", "spec.replicas", "status"}}},
			made: func(r *rand.Rand) object {
				strategy := object{"type": "Recreate"}
				if r.IntN(4) > 0 {
					strategy = object{"type": "RollingUpdate",
						"rollingUpdate": object{"maxSurge": portion(r), "maxUnavailable": portion(r)}}
				}
				return manifest("Deployment", object{"replicas": int64(r.IntN(6)), "strategy": strategy,
					"revisionHistoryLimit": int64(r.IntN(3)), "minReadySeconds": int64(r.IntN(2))})
			},
			steps: []step{scaled(deployments), rolled(deployments), rolled(deployments),
				patched(deployments, "paused or resumed", func(r *rand.Rand) object { return object{"paused": r.IntN(3) == 0} })},
		}.kind(),
		"ReplicaSet": workload{resource: replicaSets, controllers: []string{"replicaset"}, made: replicas("ReplicaSet"),
			steps: []step{scaled(replicaSets), relabelled}}.kind(),
		"ReplicationController": workload{
			resource: core("replicationcontrollers"), controllers: []string{"replicationcontroller"},
			made: func(r *rand.Rand) object {
				m := replicas("ReplicationController")(r)
				m["apiVersion"] = "v1"
				m["spec"].(object)["selector"] = object{"app": "w"}
				return m
			},
			steps: []step{scaled(core("replicationcontrollers")), rolled(core("replicationcontrollers")), relabelled},
		}.kind(),
		"DaemonSet": workload{
			resource: daemonSets, controllers: []string{"daemonset"}, owned: history,
			made: func(r *rand.Rand) object {
				rolling := object{"maxUnavailable": portion(r)}
				if r.IntN(2) == 0 {
					rolling = object{"maxSurge": portion(r), "maxUnavailable": int64(0)}
				}
				return manifest("DaemonSet", object{
					"revisionHistoryLimit": int64(r.IntN(3)), "minReadySeconds": int64(r.IntN(2)),
					"updateStrategy": object{"type": "RollingUpdate", "rollingUpdate": rolling},
				})
			},
			steps: []step{rolled(daemonSets), rolled(daemonSets), cordoned},
		}.kind(),
		"StatefulSet": workload{
			resource: statefulSets, controllers: []string{"statefulset"}, named: true, owned: history,
			made: func(r *rand.Rand) object {
				return manifest("StatefulSet", object{
					"replicas": int64(r.IntN(5)), "serviceName": "w",
					"podManagementPolicy":  []any{"OrderedReady", "Parallel"}[r.IntN(2)],
					"revisionHistoryLimit": int64(r.IntN(3)), "minReadySeconds": int64(r.IntN(2)),
					"ordinals": object{"start": int64(r.IntN(3))},
				})
			},
			steps: []step{scaled(statefulSets), rolled(statefulSets),
				patched(statefulSets, "partitioned", func(r *rand.Rand) object {
					return object{"updateStrategy": object{"rollingUpdate": object{"partition": int64(r.IntN(5))}}}
				})},
		}.kind(),
	}
}

var (
	// relabelled takes a pod away from whoever keeps it, or gives it back.
	relabelled = step{"a pod relabelled", func(t *testing.T, r *rand.Rand, w *world) {
		if list := w.active(t); len(list) > 0 {
			w.patch(t, pods, list[r.IntN(len(list))].GetName(),
				object{"metadata": object{"labels": object{"app": []any{"w", "other"}[r.IntN(2)]}}})
		}
	}}
	cordoned = step{"a node cordoned or not", func(t *testing.T, r *rand.Rand, w *world) {
		w.patch(t, nodes, fmt.Sprint("node-", r.IntN(4)), object{"spec": object{"unschedulable": r.IntN(2) == 0}})
	}}
)
