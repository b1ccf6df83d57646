package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server with a running pod cache that checks what handlers are told.
type world struct {
	t      *testing.T
	server *apitest.Server
	c      *client.Client
	pods   *cache.Cache[*corev1.Pod]

	mu   sync.Mutex
	seen map[cache.Key]*corev1.Pod // what the handlers were told
	log  []string
	lost []error // why watches were lost
	// syncs counts how often the handlers were told of the first complete state.
	syncs int
}

func inWorld(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, server: apitest.Start(t), seen: map[cache.Key]*corev1.Pod{}}
		w.c = w.server.Admin()
		w.server.Namespaces(t, "ns")
		w.pods = cache.New(cache.Config[*corev1.Pod]{
			Source: cache.Watch(w.c.Pods.Watch),
			Indexes: map[string]func(*corev1.Pod) []string{"node": func(p *corev1.Pod) []string {
				return []string{p.GetSpec().GetNodeName()}
			}},
			Seed:   1,
			OnLost: func(err error) { w.lost = append(w.lost, err) },
		})
		if w.pods.HasSynced() {
			t.Error("synced before it ran")
		}
		w.pods.AddHandler(cache.Handler[*corev1.Pod]{
			OnAdd: func(p *corev1.Pod) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.seen[cache.KeyOf(p)] != nil {
					t.Errorf("%s added twice", cache.KeyOf(p))
				}
				w.seen[cache.KeyOf(p)] = p
				w.log = append(w.log, "add "+p.GetMetadata().GetName())
			},
			OnUpdate: func(old, p *corev1.Pod) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.seen[cache.KeyOf(p)] != old {
					t.Errorf("%s updated from something else", cache.KeyOf(p))
				}
				w.seen[cache.KeyOf(p)] = p
				w.log = append(w.log, "update "+p.GetMetadata().GetName())
			},
			OnSync: func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.syncs++
			},
			OnDelete: func(p *corev1.Pod) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if old := w.seen[cache.KeyOf(p)]; old.GetMetadata().GetUid() != p.GetMetadata().GetUid() {
					t.Errorf("%s deleted without having been there", cache.KeyOf(p))
				}
				delete(w.seen, cache.KeyOf(p))
				w.log = append(w.log, "delete "+p.GetMetadata().GetName())
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.pods.Run(ctx) }()
		f(w)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
}

func (w *world) create(name, node string, labels map[string]string) *corev1.Pod {
	w.t.Helper()
	p, err := w.c.Pods.Create(w.t.Context(), &corev1rpc.CreatePodRequest{Namespace: "ns", Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:     &corev1.PodSpec{NodeName: node, Containers: []*corev1.Container{{Name: "main", Image: "host"}}},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) force(name string) {
	w.t.Helper()
	zero := int64(0)
	if _, err := w.c.Pods.Delete(w.t.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: name,
		GracePeriodSeconds: &zero}); err != nil {
		w.t.Fatal(err)
	}
}

// settle waits out back-offs and checks that cache, handlers and server agree.
func (w *world) settle() {
	w.t.Helper()
	time.Sleep(time.Minute) // virtual
	synctest.Wait()
	want, err := w.c.Pods.List(w.t.Context(), &metav1.ListRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods.Len() != len(want.GetItems()) || len(w.seen) != len(want.GetItems()) {
		w.t.Errorf("server has %d pods, cache %d, handlers saw %d", len(want.GetItems()), w.pods.Len(), len(w.seen))
	}
	byNode := map[string]int{}
	for _, p := range want.GetItems() {
		got, ok := w.pods.Get("ns", p.GetMetadata().GetName())
		if !ok || got.GetMetadata().GetResourceVersion() != p.GetMetadata().GetResourceVersion() {
			w.t.Errorf("%s: cache has %v", p.GetMetadata().GetName(), got.GetMetadata())
		}
		if w.seen[cache.KeyOf(p)] != got {
			w.t.Errorf("%s: handlers saw something else", p.GetMetadata().GetName())
		}
		byNode[p.GetSpec().GetNodeName()]++
	}
	for node, n := range byNode {
		if got := len(w.pods.ByIndex("node", node)); got != n {
			w.t.Errorf("index has %d pods on %q, want %d", got, node, n)
		}
	}
}

func TestFollows(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("a", "n1", map[string]string{"app": "x"})
		if err := w.pods.WaitForSync(w.t.Context()); err != nil {
			t.Fatal(err)
		}
		b := w.create("b", "n2", nil)
		if err := w.pods.WaitFor(w.t.Context(), b.GetMetadata().GetResourceVersion()); err != nil {
			t.Fatal(err)
		}
		if _, ok := w.pods.Get("ns", "b"); !ok {
			t.Error("did not read its own write")
		}
		if got := w.pods.List("ns", labels.SelectorFromSet(labels.Set{"app": "x"})); len(got) != 1 {
			t.Errorf("selected %d pods", len(got))
		}
		if got := w.pods.List("other", nil); len(got) != 0 {
			t.Errorf("%d pods in another namespace", len(got))
		}
		n, synced := 0, 0
		w.pods.AddHandler(cache.Handler[*corev1.Pod]{OnAdd: func(*corev1.Pod) { n++ }, OnSync: func() { synced = n }})
		if n != 2 || synced != 2 {
			t.Errorf("a late handler was told of %d pods, and that there are %d", n, synced)
		}
		// An index may be added late, too; one that is there stays.
		w.pods.AddIndex("name", func(p *corev1.Pod) []string { return []string{p.GetMetadata().GetName()} })
		w.pods.AddIndex("node", func(*corev1.Pod) []string { return nil })
		if got := w.pods.ByIndex("name", "b"); len(got) != 1 || got[0].GetMetadata().GetName() != "b" {
			t.Errorf("by an index that came late: %v", got)
		}
		w.force("a")
		w.settle()
		if len(w.pods.ByIndex("node", "n1")) != 0 || len(w.pods.ByIndex("name", "a")) != 0 {
			t.Error("the indexes still have the deleted pod")
		}
	})
}

func TestWaitGone(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.create("a", "", nil)
		if err := w.pods.WaitFor(w.t.Context(), a.GetMetadata().GetResourceVersion()); err != nil {
			t.Fatal(err)
		}
		key, uid := cache.KeyOf(a), a.GetMetadata().GetUid()
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		if err := w.pods.WaitGone(ctx, key, uid); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an object that stays: %v", err)
		}
		w.force("a")
		if err := w.pods.WaitGone(w.t.Context(), key, uid); err != nil {
			t.Fatal(err)
		}
		if _, ok := w.pods.Get("ns", "a"); ok {
			t.Error("the object is still there")
		}
		w.create("a", "", nil)
		if err := w.pods.WaitGone(w.t.Context(), key, uid); err != nil {
			t.Errorf("its successor stands for it: %v", err)
		}
	})
}

func TestWaitForEndsWithContext(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		if err := w.pods.WaitFor(ctx, "1000000"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if err := w.pods.WaitFor(ctx, "x"); err == nil {
			t.Error("accepted a bad revision")
		}
	})
}

// A lost watch resumes where it was: nothing is read twice.
func TestResume(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("a", "", nil)
		w.settle()
		var down atomic.Bool
		down.Store(true)
		w.server.React(func(_ context.Context, method string, _ any) error {
			if down.Load() && method == corev1rpc.Pods_Watch_FullMethodName {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		w.server.Cut()
		w.create("b", "", nil)
		w.force("a")
		w.create("a", "", nil)
		w.settle0(5)
		down.Store(false)
		w.settle()
		want := []string{"add a", "add b", "delete a", "add a"}
		if fmt.Sprint(w.log) != fmt.Sprint(want) {
			t.Errorf("handlers saw %v, want %v", w.log, want)
		}
		if w.syncs != 1 {
			t.Errorf("synced %d times", w.syncs)
		}
		if len(w.lost) < 2 || !apierrors.Is(w.lost[1], apierrors.ServiceUnavailable) {
			t.Errorf("watches were lost by %v", w.lost)
		}
	})
}

// settle0 only lets time pass.
func (w *world) settle0(seconds int) {
	time.Sleep(time.Duration(seconds) * time.Second)
	synctest.Wait()
}

// When the server has forgotten, everything is read again; what vanished meanwhile is reported, a name taken by
// another object is two changes.
func TestExpiredRelists(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("gone", "", nil)
		w.create("same", "", nil)
		w.create("reused", "", nil)
		w.settle()
		w.log = nil
		w.server.Cut()
		w.force("gone")
		w.force("reused")
		w.create("reused", "", nil)
		w.create("new", "", nil)
		w.server.Expire()
		w.settle()
		count := map[string]int{}
		for _, l := range w.log {
			count[l]++
		}
		want := map[string]int{"delete gone": 1, "delete reused": 1, "add reused": 1, "add new": 1}
		if fmt.Sprint(count) != fmt.Sprint(want) {
			t.Errorf("handlers saw %v, want %v", count, want)
		}
	})
}

// Random changes, lost watches and forgotten history never leave the cache wrong.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			inWorld(t, func(w *world) {
				live := map[string]bool{}
				for range 200 {
					name := fmt.Sprint("p", rng.IntN(10))
					switch {
					case live[name] && rng.IntN(2) == 0:
						w.force(name)
						delete(live, name)
					case live[name]:
						patch := fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, rng.IntN(1000))
						if _, err := w.c.Pods.Patch(w.t.Context(), &metav1.PatchRequest{
							Namespace: "ns", Name: name, Patch: []byte(patch), PatchType: "application/merge-patch+json",
						}); err != nil {
							t.Fatal(err)
						}
					default:
						w.create(name, fmt.Sprint("n", rng.IntN(3)), nil)
						live[name] = true
					}
					switch rng.IntN(20) {
					case 0:
						w.server.Cut()
					case 1:
						w.server.Expire()
					case 2:
						time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
					}
				}
				w.settle()
			})
		})
	}
}
