package charge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/utils/clock"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/admission/charge"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/store/etcd/embedded"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func open(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{
		Connect:     embedded.Connect(embedded.Config{Dir: t.TempDir(), UnsafeNoFsync: true}),
		Collections: apiserver.Collections(),
		OnMutation:  func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func few(namespace string, n int) []*corev1.ResourceQuota {
	return []*corev1.ResourceQuota{{
		Metadata: &metav1.ObjectMeta{Name: "few", Namespace: namespace},
		Spec: &corev1.ResourceQuotaSpec{Hard: map[string]*metav1.Quantity{
			"configmaps": {String_: fmt.Sprint(n)},
		}},
	}}
}

func creates(namespace, name string) registry.Write {
	return registry.Write{Next: &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name}}}
}

// stored writes what was charged, under the condition of the charge.
func stored(ctx context.Context, s *store.Store, w registry.Write, c registry.Charge) error {
	m := w.Next.GetMetadata()
	_, err := s.Commit(ctx, store.Txn{
		Guards: []store.Guard{c.Guard},
		Ops: []store.Op{{
			Key:    store.Key{Kind: corev1.ConfigMapKind, Namespace: m.GetNamespace(), Name: m.GetName()},
			Object: w.Next,
		}},
	})
	c.Settle(err)
	return err
}

// A charge sets aside what there is room for, gives it back when nothing is written, and is refused beyond that.
//
// spec: OBJ-2
func TestCharge(t *testing.T) {
	s := open(t)
	l := charge.NewLedger(s, clock.RealClock{})
	list := few("a", 2)
	quotas := func() []*corev1.ResourceQuota { return list }
	take := func(name string) (registry.Charge, error) { return l.Charge(t.Context(), creates("a", name), quotas) }
	one, err := take("one")
	if err != nil {
		t.Fatal(err)
	}
	two, err := take("two")
	if err != nil {
		t.Fatal(err)
	}
	one.Settle(registry.ErrNotStored)
	if err := stored(t.Context(), s, creates("a", "two"), two); err != nil {
		t.Fatal(err)
	}
	three, err := take("three")
	if err != nil {
		t.Fatalf("what was given back: %v", err)
	}
	if err := stored(t.Context(), s, creates("a", "three"), three); err != nil {
		t.Fatal(err)
	}
	const text = `exceeded quota: few, requested: configmaps=1, used: configmaps=2, limited: configmaps=2`
	if _, err = take("four"); !apierrors.Is(err, apierrors.Forbidden) || !strings.Contains(err.Error(), text) {
		t.Errorf("beyond the quota: %v", err)
	}
	// A larger quota counts at once, and what nobody limits costs nothing.
	list = few("a", 3)
	if four, err := take("four"); err != nil || stored(t.Context(), s, creates("a", "four"), four) != nil {
		t.Errorf("with a larger quota: %v", err)
	}
	free := registry.Write{Next: &corev1.Secret{Metadata: &metav1.ObjectMeta{Namespace: "a", Name: "s"}}}
	if c, err := l.Charge(t.Context(), free, quotas); err != nil || c.Settle != nil {
		t.Errorf("what no quota limits: %+v, %v", c, err)
	}
}

// With the quotas of a namespace goes what is kept about it, also of a request that found the quota and came too late.
// What was charged before is not written afterwards: there may be a new quota, which does not know of it.
func TestForget(t *testing.T) {
	s := open(t)
	l := charge.NewLedger(s, clock.RealClock{})
	for i := range 100 {
		name := fmt.Sprint("team-", i)
		list := few(name, 5)
		c, err := l.Charge(t.Context(), creates(name, "a"), func() []*corev1.ResourceQuota { return list })
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			c.Settle(registry.ErrNotStored)
		} // others are on their way for ever
		l.Forget(name)
	}
	if n := l.Sheets(); n != 0 {
		t.Errorf("%d sheets of namespaces without quotas", n)
	}
	// The quota goes while a charge is judged.
	asked := 0
	_, err := l.Charge(t.Context(), creates("late", "a"), func() []*corev1.ResourceQuota {
		if asked++; asked > 1 {
			return nil
		}
		return few("late", 5)
	})
	if err != nil || l.Sheets() != 0 {
		t.Errorf("after the quota has gone: %v, %d sheets", err, l.Sheets())
	}

	list := few("again", 1)
	quotas := func() []*corev1.ResourceQuota { return list }
	before, err := l.Charge(t.Context(), creates("again", "a"), quotas)
	if err != nil {
		t.Fatal(err)
	}
	l.Forget("again")
	after, err := l.Charge(t.Context(), creates("again", "b"), quotas)
	if err != nil {
		t.Fatal(err)
	}
	if err := stored(t.Context(), s, creates("again", "b"), after); err != nil {
		t.Fatal(err)
	}
	var conflict *store.ConflictError
	if err := stored(t.Context(), s, creates("again", "a"), before); !errors.As(err, &conflict) {
		t.Errorf("a charge of the sheet that was forgotten is written: %v", err)
	}
}

// However charges, writes that fail and forgetting follow each other, there is never more than the quota lets in.
func TestForgettingAdmitsNothing(t *testing.T) {
	s := open(t)
	l := charge.NewLedger(s, clock.RealClock{})
	const most = 7
	list := few("a", most)
	quotas := func() []*corev1.ResourceQuota { return list }
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	var written atomic.Int64
	for i := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for j := range 25 {
				w := creates("a", fmt.Sprint(i, "-", j))
				c, err := l.Charge(t.Context(), w, quotas)
				switch {
				case err != nil && !apierrors.Is(err, apierrors.Forbidden):
					t.Error(err)
				case err != nil:
				case r.IntN(3) == 0:
					c.Settle(registry.ErrNotStored)
				default:
					if stored(t.Context(), s, w, c) == nil {
						written.Add(1)
					}
				}
				if r.IntN(4) == 0 {
					l.Forget("a")
				}
			}
		})
	}
	wg.Wait()
	if n := written.Load(); n != most {
		t.Errorf("%d were written, and %d is what the quota lets in", n, most)
	}
}
