package nodeagent_test

import (
	"context"
	"slices"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/record"
)

// A pod whose volumes cannot be mounted is held, with an event; on a simulated machine it runs.
func TestVolumes(t *testing.T) {
	claim := edit(func(p *corev1.Pod) {
		p.Spec.Volumes = []*corev1.Volume{{Name: "data", VolumeSource: &corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
		}}}
	})
	for name, simulated := range map[string]bool{"real": false, "simulated": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				recorder := record.New(record.Config{Events: w.c.Events, Controller: "kubelet", Instance: nodeName})
				ctx, stop := context.WithCancel(w.t.Context())
				ended := make(chan error, 1)
				go func() { ended <- recorder.Run(ctx) }()
				defer func() { stop(); <-ended }()
				w.cfg.Simulated, w.cfg.Recorder = simulated, recorder
				w.start()
				w.create("a", claim)
				w.settle()
				if simulated {
					w.phase("a", "Running")
					return
				}
				p := w.phase("a", "Pending")
				if got := p.GetStatus().GetContainerStatuses()[0].GetState().GetWaiting().GetReason(); got != "ContainerCreating" {
					w.t.Errorf("the container waits because of %q", got)
				}
				events, err := w.c.Events.List(w.t.Context(), &metav1.ListRequest{})
				if err != nil {
					w.t.Fatal(err)
				}
				const want = "Unable to attach or mount volumes: unmounted volumes=[data]: this version of Monoplane does not " +
					"mount volumes"
				if !slices.ContainsFunc(events.Items, func(e *corev1.Event) bool {
					return e.Reason == "FailedMount" && e.Type == "Warning" && e.Message == want
				}) {
					w.t.Errorf("events %v", events.Items)
				}
				w.empty()
				w.delete("a", -1)
				w.settle()
				if w.get("a") != nil {
					w.t.Error("a pod that was held cannot be deleted")
				}
			})
		})
	}
}
