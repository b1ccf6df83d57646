package scheduler_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
)

// refuser refuses pods named "never" and counts how often it is asked about them. It says nothing about events, so
// that any wakes them.
type refuser struct{ asked atomic.Int64 }

func (*refuser) Name() string { return "Refuser" }

func (r *refuser) PreFilter(
	_ *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot,
) (*framework.PreFilterResult, *framework.Status) {
	if pod.Key.Name != "never" {
		return nil, nil
	}
	r.asked.Add(1)
	return nil, framework.NewStatus(framework.Unschedulable, r.Name(), "never")
}

// A node that only reports other images draws the next pod that wants them, and wakes no pod that waits.
// spec: SCHED-2, SCHED-5
func TestImagesReachTheState(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		r := &refuser{}
		profile, err := framework.NewProfile("second", 0, append(scheduler.DefaultPlugins(w.c),
			framework.Enabled{Plugin: r})...)
		w.must(nil, err)
		defer w.start(scheduler.Config{Profiles: []*framework.Profile{profile}})()
		nodes := []string{"n1", "n2", "n3"}
		for _, name := range nodes {
			w.addNode(newNode(name))
		}
		add := func(name string) {
			p := newPod(name)
			p.Spec.SchedulerName, p.Spec.Containers[0].Image = "second", "a"
			w.addPod(p)
			synctest.Wait()
		}
		add("never")
		for _, has := range []string{"n2", "n3", "n1"} {
			time.Sleep(time.Minute) // virtual: no back-off holds the pod
			synctest.Wait()
			before := r.asked.Load()
			for _, name := range nodes {
				w.changeNode(name, func(n *corev1.Node) {
					n.Status.Images = nil
					if name == has {
						n.Status.Images = []*corev1.ContainerImage{{Names: []string{"a:latest"}, SizeBytes: 3000 << 20}}
					}
				})
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if before == 0 || r.asked.Load() != before {
				w.Errorf("asked %d times before the images changed, %d after it", before, r.asked.Load())
			}
			add("wants-" + has)
			if got := w.nodeOf("wants-" + has); got != has {
				w.Errorf("the pod is on %s, its image on %s", got, has)
			}
			w.force("wants-" + has)
		}
	})
}
