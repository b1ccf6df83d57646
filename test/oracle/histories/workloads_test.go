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
	made func(*rand.Rand) fields
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
		shown: append([]shown{
			{resource: k.resource, paths: []string{"metadata.annotations", "spec", "status"}}}, k.owned...),
	}
}

func template(image int) fields {
	return fields{
		"metadata": fields{"labels": fields{"app": "w"}},
		"spec": fields{
			"terminationGracePeriodSeconds": int64(1),
			"containers": []any{fields{"name": "c", "image": fmt.Sprintf("image:%d", image),
				"readinessProbe": fields{"exec": fields{"command": []any{"ready"}}, "periodSeconds": int64(1)}}},
		},
	}
}

func manifest(kind string, spec fields) fields {
	full := fields{"selector": fields{"matchLabels": fields{"app": "w"}}, "template": template(1)}
	for k, v := range spec {
		full[k] = v
	}
	return fields{"apiVersion": "apps/v1", "kind": kind, "metadata": fields{"name": "w"}, "spec": full}
}

func portion(r *rand.Rand) any { return []any{int64(1), int64(2), "25%", "50%"}[r.IntN(4)] }

// patched is a step that changes the spec of w.
func patched(resource schema.GroupVersionResource, name string, spec func(*rand.Rand) fields) step {
	return step{name, func(t *testing.T, r *rand.Rand, w *world) {
		w.patch(t, resource, "w", fields{"spec": spec(r)})
	}}
}

func scaled(resource schema.GroupVersionResource) step {
	return patched(resource, "scaled", func(r *rand.Rand) fields { return fields{"replicas": int64(r.IntN(7))} })
}

func rolled(resource schema.GroupVersionResource) step {
	return patched(resource, "given another template", func(r *rand.Rand) fields {
		return fields{"template": template(1 + r.IntN(4))}
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
			w.patch(t, pods, list[r.IntN(len(list))].GetName(), fields{"spec": fields{"activeDeadlineSeconds": int64(1)}})
		}
	}}
)

func workloads() map[string]kind {
	deployments, replicaSets, daemonSets, statefulSets := apps("deployments"), apps("replicasets"), apps("daemonsets"),
		apps("statefulsets")
	history := []shown{{resource: revisions, paths: []string{"revision", "data.spec.template.spec.containers"}}}
	replicas := func(kind string) func(*rand.Rand) fields {
		return func(r *rand.Rand) fields {
			return manifest(kind, fields{"replicas": int64(r.IntN(6)), "minReadySeconds": int64(r.IntN(2))})
		}
	}
	return map[string]kind{
		"Deployment": workload{
			resource: deployments, controllers: []string{"deployment", "replicaset"},
			owned: []shown{{resource: replicaSets, paths: []string{"metadata.annotations", "spec.replicas", "status"}}},
			made: func(r *rand.Rand) fields {
				strategy := fields{"type": "Recreate"}
				if r.IntN(4) > 0 {
					strategy = fields{"type": "RollingUpdate",
						"rollingUpdate": fields{"maxSurge": portion(r), "maxUnavailable": portion(r)}}
				}
				return manifest("Deployment", fields{"replicas": int64(r.IntN(6)), "strategy": strategy,
					"revisionHistoryLimit": int64(r.IntN(3)), "minReadySeconds": int64(r.IntN(2))})
			},
			steps: []step{scaled(deployments), rolled(deployments), rolled(deployments),
				patched(deployments, "paused or resumed", func(r *rand.Rand) fields { return fields{"paused": r.IntN(3) == 0} })},
		}.kind(),
		"ReplicaSet": workload{resource: replicaSets, controllers: []string{"replicaset"}, made: replicas("ReplicaSet"),
			steps: []step{scaled(replicaSets), relabelled}}.kind(),
		"ReplicationController": workload{
			resource: core("replicationcontrollers"), controllers: []string{"replicationcontroller"},
			made: func(r *rand.Rand) fields {
				m := replicas("ReplicationController")(r)
				m["apiVersion"] = "v1"
				m["spec"].(fields)["selector"] = fields{"app": "w"}
				return m
			},
			steps: []step{scaled(core("replicationcontrollers")), rolled(core("replicationcontrollers")), relabelled},
		}.kind(),
		"DaemonSet": workload{
			resource: daemonSets, controllers: []string{"daemonset"}, owned: history,
			made: func(r *rand.Rand) fields {
				rolling := fields{"maxUnavailable": portion(r)}
				if r.IntN(2) == 0 {
					rolling = fields{"maxSurge": portion(r), "maxUnavailable": int64(0)}
				}
				return manifest("DaemonSet", fields{
					"revisionHistoryLimit": int64(r.IntN(3)), "minReadySeconds": int64(r.IntN(2)),
					"updateStrategy": fields{"type": "RollingUpdate", "rollingUpdate": rolling},
				})
			},
			steps: []step{rolled(daemonSets), rolled(daemonSets), cordoned},
		}.kind(),
		"StatefulSet": workload{
			resource: statefulSets, controllers: []string{"statefulset"}, named: true, owned: history,
			made: func(r *rand.Rand) fields {
				return manifest("StatefulSet", fields{
					"replicas": int64(r.IntN(5)), "serviceName": "w",
					"podManagementPolicy":  []any{"OrderedReady", "Parallel"}[r.IntN(2)],
					"revisionHistoryLimit": int64(r.IntN(3)), "minReadySeconds": int64(r.IntN(2)),
					"ordinals": fields{"start": int64(r.IntN(3))},
				})
			},
			steps: []step{scaled(statefulSets), rolled(statefulSets),
				patched(statefulSets, "partitioned", func(r *rand.Rand) fields {
					return fields{"updateStrategy": fields{"rollingUpdate": fields{"partition": int64(r.IntN(5))}}}
				})},
		}.kind(),
	}
}

var (
	// relabelled takes a pod away from whoever keeps it, or gives it back.
	relabelled = step{"a pod relabelled", func(t *testing.T, r *rand.Rand, w *world) {
		if list := w.active(t); len(list) > 0 {
			w.patch(t, pods, list[r.IntN(len(list))].GetName(),
				fields{"metadata": fields{"labels": fields{"app": []any{"w", "other"}[r.IntN(2)]}}})
		}
	}}
	cordoned = step{"a node cordoned or not", func(t *testing.T, r *rand.Rand, w *world) {
		w.patch(t, nodes, fmt.Sprint("node-", r.IntN(4)), fields{"spec": fields{"unschedulable": r.IntN(2) == 0}})
	}}
)
