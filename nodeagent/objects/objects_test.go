package objects_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/nodeagent/objects"
)

// However many pods use an object, one watch follows it, from the first read until the last of them is gone; each pod
// is told of a change once.
func TestOneWatchForManyPods(t *testing.T) {
	for _, name := range []string{"c", "s"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.put(name, "1", false)
				var uids []string
				for i := range 100 {
					p := pod(fmt.Sprintf("p%02d", i), name, name)
					uids = append(uids, p.Metadata.Uid)
					w.Track(p)
					w.Track(p) // as often as the pod changes
				}
				w.settle()
				if n := w.watches(); n != 0 {
					w.t.Errorf("%d watches before anybody reads", n)
				}
				for range 100 {
					w.reads(name, "1")
				}
				if n := w.watches(); n != 1 {
					w.t.Errorf("%d watches for 100 pods", n)
				}
				w.expect()
				w.put(name, "2", false)
				w.expect(fmt.Sprint(uids))
				w.reads(name, "2")
				for _, uid := range uids[1:] {
					w.Forget(uid)
				}
				if n := w.watches(); n != 1 {
					w.t.Errorf("%d watches while a pod is left", n)
				}
				w.put(name, "3", false)
				w.expect("[p00]")
				w.Forget(uids[0])
				w.settle()
				if n := w.watches(); n != 0 {
					w.t.Errorf("%d watches when no pod is left", n)
				}
				w.put(name, "4", false)
				w.expect()
				w.reads(name, "4") // asked of the API
			})
		})
	}
}

// What is missing is not found until it is made, and again when it has been deleted; pods are told.
func TestMissing(t *testing.T) {
	for _, name := range []string{"c", "s"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.Track(pod("a", name))
				for range 3 {
					w.reads(name, "none")
				}
				w.expect()
				w.put(name, "1", false)
				w.expect("[a]")
				w.reads(name, "1")
				w.delete(name)
				w.expect("[a]")
				w.reads(name, "none")
				w.put(name, "2", false)
				w.expect("[a]")
				w.reads(name, "2")
				if n := w.watches(); n != 1 {
					w.t.Errorf("%d watches", n)
				}
			})
		})
	}
}

// A change of something else than the content is none.
func TestLabelsAreNoContent(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, name := range []string{"c", "s"} {
			w.put(name, "1", false)
			w.Track(pod("a", "c", "s"))
			w.reads(name, "1")
		}
		patch := &metav1.PatchRequest{Namespace: "ns", Name: "c", PatchType: "application/merge-patch+json",
			Patch: []byte(`{"metadata":{"labels":{"a":"b"}}}`)}
		if _, err := w.c.ConfigMaps.Patch(w.t.Context(), patch); err != nil {
			w.t.Fatal(err)
		}
		patch.Name = "s"
		if _, err := w.c.Secrets.Patch(w.t.Context(), patch); err != nil {
			w.t.Fatal(err)
		}
		w.expect()
		for kind, change := range map[string]string{"c": `{"binaryData":{"b":"AA=="}}`, "s": `{"data":{"b":"AA=="}}`} {
			patch.Name, patch.Patch = kind, []byte(change)
			var err error
			if kind == "c" {
				_, err = w.c.ConfigMaps.Patch(w.t.Context(), patch)
			} else {
				_, err = w.c.Secrets.Patch(w.t.Context(), patch)
			}
			if err != nil {
				w.t.Fatal(err)
			}
			w.expect("[a]")
		}
	})
}

// What cannot change is read and not watched. A pod that comes later sees what has been made in its place.
func TestImmutable(t *testing.T) {
	for _, name := range []string{"c", "s"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.put(name, "1", true)
				w.Track(pod("a", name))
				for range 3 {
					w.reads(name, "1")
				}
				w.settle()
				if n := w.watches(); n != 0 {
					w.t.Errorf("%d watches", n)
				}
				w.delete(name)
				w.put(name, "2", true)
				w.reads(name, "1")
				w.expect()
				w.Track(pod("b", name))
				w.reads(name, "2")
				w.expect("[a b]")
				w.delete(name)
				w.put(name, "3", false)
				w.Track(pod("c", name))
				w.reads(name, "3")
				if n := w.watches(); n != 1 {
					w.t.Errorf("%d watches of what can change again", n)
				}
				w.changes()
				w.put(name, "4", true)
				w.expect("[a b c]")
				w.reads(name, "4")
				if n := w.watches(); n != 0 {
					w.t.Errorf("%d watches of what has become immutable", n)
				}
			})
		})
	}
}

// Without the API the tracker goes on with what it has, and says at once what it has not. When the API is back, pods
// are told of what they could not read, and of what has changed meanwhile.
func TestWithoutTheAPI(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put("c1", "1", false)
		w.put("c2", "1", false)
		w.put("s", "1", false)
		w.Track(pod("a", "c1", "c2", "s"))
		w.reads("c1", "1")
		down := func(context.Context, string, any) error { return apierrors.New(apierrors.ServiceUnavailable, "down") }
		w.server.React(down)
		w.server.Cut()
		time.Sleep(time.Minute)
		w.reads("c1", "1")
		began := time.Now()
		for range 3 {
			if _, err := read(w.t.Context(), w, "s"); !apierrors.Is(err, apierrors.ServiceUnavailable) {
				w.t.Errorf("what was never known: %v", err)
			}
		}
		if time.Since(began) > time.Second {
			w.t.Errorf("it took %v to say so", time.Since(began))
		}
		w.expect()
		w.server.React(nil)
		time.Sleep(time.Minute)
		w.expect("[a]")
		w.reads("s", "1")
		w.server.React(down)
		w.server.Cut()
		w.server.React(nil)
		w.put("c1", "2", false)
		w.server.Expire()
		time.Sleep(time.Minute)
		w.expect("[a]")
		w.reads("c1", "2")
	})
}

// An API that does not answer holds up a read for a while, and not for ever.
func TestSilentAPI(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put("s", "hunter2", false)
		release := make(chan struct{})
		w.server.React(func(ctx context.Context, _ string, _ any) error {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return nil
		})
		w.Track(pod("a", "s"))
		began := time.Now()
		if _, err := read(w.t.Context(), w, "s"); err == nil || time.Since(began) != 10*time.Second {
			w.t.Errorf("got %v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		if _, err := read(ctx, w, "s"); err == nil || strings.Contains(err.Error(), "hunter2") {
			w.t.Errorf("got %v", err)
		}
		forgotten := make(chan error)
		go func() {
			_, err := read(w.t.Context(), w, "s")
			forgotten <- err
		}()
		w.settle()
		w.Forget("a")
		if err := <-forgotten; err == nil || !strings.Contains(err.Error(), "no pod of this node") {
			w.t.Errorf("got %v", err)
		}
		close(release)
	})
}

// An agent gets what its own pods use. What it may not read is said, and read when it may.
//
// spec: OBJ-15
func TestAgentsReadTheirOwn(t *testing.T) {
	agent := func(s *apitest.Server) *client.Client { return s.Agent("n1") }
	inWorldAs(t, agent, func(w *world) {
		w.put("s", "hunter2", false)
		p := pod("", "s")
		p.Metadata.Name, p.Spec.Containers[0].EnvFrom = "a", nil
		p.Spec.ImagePullSecrets = []*corev1.LocalObjectReference{{Name: "s"}}
		for _, source := range []objects.Source{w, objects.Direct(w.cfg.Client)} {
			_, err := source.Secret(w.t.Context(), "ns", "s")
			if !apierrors.Is(err, apierrors.Forbidden) {
				w.t.Errorf("what no pod uses: %v", err)
			}
		}
		p.Metadata.Uid = "unknown"
		w.Track(p)
		if _, err := read(w.t.Context(), w, "s"); !apierrors.Is(err, apierrors.Forbidden) ||
			strings.Contains(err.Error(), "hunter2") {
			w.t.Errorf("what a pod uses that the server does not know: %v", err)
		}
		p.Metadata.Uid, p.Spec.NodeName = "", "n1"
		made, err := w.c.Pods.Create(w.t.Context(), &corev1rpc.CreatePodRequest{Object: p})
		if err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.expect("[unknown]")
		w.Track(made)
		w.Forget("unknown")
		w.reads("s", "hunter2")
		if n := w.watches(); n != 1 {
			w.t.Errorf("%d watches", n)
		}
	})
}

// A pod that comes to use more, by an ephemeral container, gets that, too.
func TestPodsCanUseMore(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, name := range []string{"c1", "c2", "s"} {
			w.put(name, "1", false)
		}
		w.Track(pod("a", "c1"))
		w.reads("c1", "1")
		w.Track(pod("a", "c1", "c2", "s"))
		w.reads("c2", "1")
		w.reads("s", "1")
		if n := w.watches(); n != 3 {
			w.t.Errorf("%d watches", n)
		}
		w.Track(pod("a", "c2"))
		w.settle()
		if n := w.watches(); n != 1 {
			w.t.Errorf("%d watches of what is still used", n)
		}
		w.Forget("a")
		w.Forget("a")
		w.Forget("unknown")
	})
}

// Random pods, objects and faults: in the end all that pods use is seen as it is, with no more watches than that.
func TestRandom(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			inWorld(t, func(w *world) { random(w, rng) })
		})
	}
}

func random(w *world, rng *rand.Rand) {
	names := []string{"c1", "c2", "c3", "s1", "s2", "s3"}
	used := map[string][]string{} // by uid
	there := map[string]string{}
	for step := range 200 {
		name, uid := names[rng.IntN(len(names))], fmt.Sprint("p", rng.IntN(5))
		switch rng.IntN(8) {
		case 0, 1:
			value := fmt.Sprint(step)
			if have, ok := there[name]; !ok || !strings.HasSuffix(have, "!") {
				if rng.IntN(5) == 0 {
					value += "!" // immutable
				}
				w.put(name, value, strings.HasSuffix(value, "!"))
				there[name] = value
			}
		case 2:
			if _, ok := there[name]; ok {
				w.delete(name)
				delete(there, name)
			}
		case 3:
			used[uid] = names[rng.IntN(3) : 3+rng.IntN(4)]
			w.Track(pod(uid, used[uid]...))
		case 4:
			delete(used, uid)
			w.Forget(uid)
		case 5:
			_, _ = read(w.t.Context(), w, name)
		case 6:
			switch rng.IntN(4) {
			case 0:
				w.server.Cut()
			case 1:
				w.server.Expire()
			}
		case 7:
			time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		}
	}
	time.Sleep(time.Minute)
	most := map[string]bool{}
	uid := "last"
	for _, list := range used {
		for _, name := range list {
			most[name] = true
		}
	}
	w.Track(pod(uid, names...)) // makes what has settled be read again
	for _, name := range names {
		want, ok := there[name]
		if !ok {
			want = "none"
		}
		w.reads(name, want)
	}
	w.Forget(uid)
	w.settle()
	if n := w.watches(); n > len(most) {
		w.t.Errorf("%d watches for %d objects", n, len(most))
	}
	for uid := range used {
		w.Forget(uid)
	}
	w.settle()
	if n := w.watches(); n != 0 {
		w.t.Errorf("%d watches for no pods", n)
	}
	if slices.ContainsFunc(w.changes(), func(line string) bool { return line == "[]" }) {
		w.t.Error("a change was told to nobody")
	}
}
