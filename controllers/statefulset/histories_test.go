package statefulset_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/rules/phase"
)

// processes are those of members on nodes: one may run from the moment on at which its pod is bound until its agent
// has seen its end, which it says before the object goes.
type processes struct {
	t  *testing.T
	mu sync.Mutex
	// ended are the uids of pods whose agents have seen their end.
	ended map[string]bool
	// bound are the uids of pods that were bound.
	bound map[string]bool
	// forced are deletions without a grace period by others than agents.
	forced []string
}

// watch follows the requests of a server, and its pods until ctx ends; wait then returns when it has.
func (r *processes) watch(ctx context.Context, server *apitest.Server) (wait func()) {
	server.React(func(_ context.Context, method string, req any) error {
		switch method {
		case appsv1rpc.StatefulSets_UpdateStatus_FullMethodName:
			// As on any machine, so that time passes while two controllers contradict each other, one of which is without
			// its watch.
			time.Sleep(10 * time.Millisecond)
		case corev1rpc.Pods_Delete_FullMethodName:
			d := req.(*metav1.DeleteRequest)
			if d.GetOptions() == nil || d.GetOptions().GracePeriodSeconds == nil || d.GetOptions().GetGracePeriodSeconds() > 0 {
				return nil
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if uid := d.GetOptions().GetPreconditions().GetUid(); uid != "" {
				r.ended[uid] = true
			} else {
				r.forced = append(r.forced, d.GetName())
			}
		}
		return nil
	})
	pods := cache.New(cache.Config[*corev1.Pod]{Source: cache.Watch(server.Admin().Pods.Watch)})
	seen := func(p *corev1.Pod) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if p.GetSpec().GetNodeName() != "" {
			r.bound[p.GetMetadata().GetUid()] = true
		}
	}
	pods.AddHandler(cache.Handler[*corev1.Pod]{
		OnAdd: seen, OnUpdate: func(_, p *corev1.Pod) { seen(p) },
		OnDelete: func(p *corev1.Pod) {
			seen(p)
			r.mu.Lock()
			defer r.mu.Unlock()
			if uid := p.GetMetadata().GetUid(); r.bound[uid] && !r.ended[uid] && !phase.Terminal(p) {
				r.t.Errorf("pod %s with uid %s is gone, and may still run", p.GetMetadata().GetName(), uid)
			}
		},
	})
	var calls sync.WaitGroup
	calls.Go(func() { _ = pods.Run(ctx) })
	return calls.Wait
}

// Whatever happens to agents, controllers and the server, the name of a member is free for its successor only when its
// own end was seen, so that no two of one identity may run at a time; nobody forces a deletion, and what is wanted is
// there in the end. spec: WORK-2, SAFE-1
func TestRandomHistories(t *testing.T) {
	const histories = 8
	bound, played := 0, 0
	for seed := range uint64(histories) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			var mu sync.Mutex // of rng, which agents ask too
			random := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return rng.IntN(n)
			}
			slow := func(most int) func(*corev1.Pod) time.Duration {
				return func(*corev1.Pod) time.Duration {
					if random(8) == 0 { // its agent is stopped, and goes on later
						return time.Duration(random(600)) * time.Second
					}
					return time.Duration(random(most)) * time.Millisecond
				}
			}
			nodes := &controllertest.Nodes{StartsIn: slow(3000), StopsIn: slow(5000)}
			inWorld(t, nodes, func(w *world) {
				run := &processes{t: t, ended: map[string]bool{}, bound: map[string]bool{}}
				ctx, cancel := context.WithCancel(w.Context())
				wait := run.watch(ctx, w.server)
				lost := errors.New("the answer is lost")
				w.server.After(func(_ context.Context, method string, _, _ any) error {
					switch method {
					case corev1rpc.Pods_Create_FullMethodName, corev1rpc.Pods_Delete_FullMethodName,
						appsv1rpc.ControllerRevisions_Create_FullMethodName, appsv1rpc.StatefulSets_UpdateStatus_FullMethodName:
						if random(12) == 0 {
							return lost
						}
					}
					return nil
				})
				change := []func(*appsv1.StatefulSetSpec){claims(random(2) == 0, false)}
				if random(2) == 0 {
					change = append(change, atOnce)
				}
				if random(2) == 0 {
					change = append(change, rolling(0, int32(1+random(3)))) //nolint:gosec // small
				}
				w.create(3, change...)
				others := []func(){} // further controllers, which know nothing of each other
				version, size := 1, int32(3)
				for range 60 {
					switch random(9) {
					case 0:
						version = 1 + random(4)
						w.image(fmt.Sprint("image:", version))
					case 1:
						size = int32(random(6)) //nolint:gosec // small
						w.scale(size)
					case 2:
						w.server.Cut()
					case 3:
						w.server.Expire()
					case 4:
						w.stop()
						w.stop = w.start()
					case 5:
						if len(others) < 2 {
							others = append(others, w.start())
						} else {
							others[0]()
							others = others[1:]
						}
					case 6:
						name := fmt.Sprint("web-", random(5))
						// It may be gone, or the answer lost.
						_, _ = w.c.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: name})
					default:
						time.Sleep(time.Duration(random(20000)) * time.Millisecond)
					}
				}
				for _, stop := range others {
					stop()
				}
				size = max(size, 1)
				w.scale(size)
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				w.wants(fmt.Sprint(size, size, size, size, size))
				l, err := w.c.Pods.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
				w.must(err)
				for _, p := range l.GetItems() {
					if got := p.GetSpec().GetContainers()[0].GetImage(); got != fmt.Sprint("image:", version) {
						w.Errorf("%s has %s, want version %d", p.GetMetadata().GetName(), got, version)
					}
				}
				cancel()
				wait()
				if len(run.forced) > 0 {
					w.Errorf("forced %v", run.forced)
				}
				bound += len(run.bound)
				played++
			})
		})
	}
	// A history may end soon after its only members were deleted; all together may not.
	if played == histories && bound < 4*histories {
		t.Errorf("%d pods were bound in %d histories: they show little", bound, histories)
	}
}
