package histories

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// hand is a node without an agent: what becomes of its pods the steps of a history say.
const hand = "hand"

// byHand are the controllers that would mind such a node.
var byHand = []string{"node-lifecycle", "taint-eviction"}

func (w *world) addHand(t *testing.T) {
	t.Helper()
	w.create(t, nodes, fields{"apiVersion": "v1", "kind": "Node", "metadata": fields{"name": hand,
		"labels": fields{"topology.kubernetes.io/zone": "zone-1"}}})
}

// report writes the status of a pod, as the agent of its node would.
func (w *world) report(t *testing.T, pod unstructured.Unstructured, phase string, status fields) {
	t.Helper()
	full := fields{"phase": phase}
	for k, v := range status {
		full[k] = v
	}
	body, err := json.Marshal(fields{"metadata": fields{"uid": string(pod.GetUID())}, "status": full})
	if err == nil {
		_, err = w.agent.Patch(t.Context(), pod.GetName(), types.MergePatchType, body, v1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) { // it may have gone meanwhile
		t.Fatalf("%s: %v", w.name, err)
	}
}

// isReady is the condition Ready, true or not, beside others.
func isReady(ready bool, others ...any) fields {
	status := map[bool]string{true: "True", false: "False"}[ready]
	now := time.Now().UTC().Format(time.RFC3339)
	return fields{"conditions": append([]any{
		fields{"type": "Ready", "status": status, "lastTransitionTime": now},
		fields{"type": "ContainersReady", "status": status, "lastTransitionTime": now},
	}, others...)}
}

// ended is the status of a pod whose container has exited.
func ended(code int64, others ...any) fields {
	status := isReady(false, others...)
	now := time.Now().UTC().Format(time.RFC3339)
	status["containerStatuses"] = []any{fields{"name": "c", "image": "image:1", "imageID": "image:1", "ready": false,
		"restartCount": int64(0), "started": false, "state": fields{"terminated": fields{"exitCode": code,
			"reason": "Ended", "startedAt": now, "finishedAt": now}}}}
	return status
}

// some returns one to as many as four of the pods that have not ended and are not being deleted.
func (w *world) some(t *testing.T, r *rand.Rand) []unstructured.Unstructured {
	t.Helper()
	var list []unstructured.Unstructured
	for _, p := range w.active(t) {
		if p.GetDeletionTimestamp() == nil {
			list = append(list, p)
		}
	}
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(len(list), 1+r.IntN(4))]
}

// letGo ends the pods that are being deleted, as agents do when they have stopped them.
var letGo = step{"deleted pods gone", func(t *testing.T, _ *rand.Rand, w *world) {
	none := int64(0)
	for _, p := range w.list(t, pods) {
		if p.GetDeletionTimestamp() != nil {
			if phase := at(p.Object, "status", "phase"); phase != "Failed" && phase != "Succeeded" {
				w.report(t, p, "Failed", ended(137))
			}
			uid := p.GetUID()
			if err := w.agent.Delete(t.Context(), p.GetName(), v1.DeleteOptions{GracePeriodSeconds: &none,
				Preconditions: &v1.Preconditions{UID: &uid}}); err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
		}
	}
}}
