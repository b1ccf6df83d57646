package disruption_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
	rules "monoplane.dev/rules/disruption"
)

// However many clients evict at once, while pods are replaced and turn ready at any time: at no revision are there
// fewer healthy pods than there must be. spec: DISR-2
func TestNeverFewerThanMustBe(t *testing.T) {
	for i := range 3 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Logf("seed %d", seed)
			synctest.Test(t, func(t *testing.T) { neverFewer(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func neverFewer(t *testing.T, r *rand.Rand) {
	const pods, clients, rounds = 10, 16, 30
	must := int32(3 + r.IntN(6))
	w := start(t)
	for i := range pods {
		w.pod(fmt.Sprintf("web-%d", i), true, nil)
	}
	w.budget("b", &policyv1.PodDisruptionBudgetSpec{MinAvailable: number(must)})
	w.settle()
	watch, err := w.admin.Pods.Watch(t.Context(), &metav1.WatchRequest{Namespace: "default"})
	w.must(err)
	_, err = watch.Header() // it begins with the state as it is when it is accepted
	w.must(err)

	var all sync.WaitGroup
	evictions := make([]int, clients)
	for c := range clients {
		own := rand.New(rand.NewPCG(r.Uint64(), 1))
		all.Go(func() {
			for range rounds {
				if w.evict(fmt.Sprintf("web-%d", own.IntN(pods))) == "" {
					evictions[c]++
				}
				time.Sleep(time.Duration(own.IntN(2000)) * time.Millisecond)
			}
		})
	}
	own := rand.New(rand.NewPCG(r.Uint64(), 2))
	all.Go(func() { // what an agent and a ReplicaSet do: what goes is gone after a while, and replaced
		for range rounds * 3 {
			name := fmt.Sprintf("web-%d", own.IntN(pods))
			p, err := w.admin.Pods.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: name})
			switch {
			case err != nil:
				p, err = w.create(name, nil)
				w.must(err)
				time.Sleep(time.Duration(own.IntN(500)) * time.Millisecond)
				_, _ = w.report(p, true)
			case p.Metadata.DeletionTimestamp != nil:
				w.remove(name)
			}
			time.Sleep(time.Duration(own.IntN(700)) * time.Millisecond)
		}
	})
	all.Wait()
	w.settle()

	healthy := map[string]bool{}
	end, err := w.create("end", nil)
	w.must(err)
	for done, complete := false, false; !done; {
		batch, err := watch.Recv()
		w.must(err)
		for _, e := range batch.Events {
			m := e.Object.GetMetadata()
			done = done || m.GetUid() == end.Metadata.Uid
			healthy[m.GetName()] = e.Type != "DELETED" && m.GetDeletionTimestamp() == nil && rules.Healthy(e.Object)
			n := count(healthy)
			complete = complete || n == pods // the first events tell of the pods that there were
			if complete && n < int(must) {
				t.Fatalf("at %s, by %s of %s, %d pods are healthy, and %d must be", m.GetResourceVersion(), e.Type, m.GetName(),
					n, must)
			}
		}
	}
	sum := 0
	for _, n := range evictions {
		sum += n
	}
	t.Logf("%d of %d must be: %d evictions", must, pods, sum)
	w.stop()
}

func count(healthy map[string]bool) (n int) {
	for _, is := range healthy {
		if is {
			n++
		}
	}
	return n
}
