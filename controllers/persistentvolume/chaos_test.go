package persistentvolume_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
)

var onlySeed = flag.Int("seed", -1, "the one history to look at")

// Whatever users, the scheduler and failing calls do at the same time: no claim is ever in two hands, no volume
// either, a claim never changes its volume, and when all is quiet both halves agree.
func TestChaos(t *testing.T) {
	first, last := 0, 40
	if *onlySeed >= 0 {
		first, last = *onlySeed, *onlySeed+1
	}
	bound := 0
	for seed := first; seed < last; seed++ {
		inWorld(t, func(w *world) {
			h := &history{world: w, rng: rand.New(rand.NewPCG(uint64(seed), 3)), seed: seed,
				took: map[string]string{}} //nolint:gosec // not negative
			h.run()
			bound += len(h.took)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("seeds %d..%d: %d bindings", first, last-1, bound)
	if *onlySeed < 0 && bound < 60 {
		t.Errorf("%d bindings are too few", bound)
	}
}

type history struct {
	*world
	seed int

	mu  sync.Mutex
	rng *rand.Rand
	// took is the volume, by uid, that each claim, by uid, was seen with when its binding was complete.
	took map[string]string
}

func (h *history) n(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rng.IntN(n)
}

func (h *history) run() {
	h.addNode("n1")
	h.addClass(newClass("now", storage.NoProvisioner, "Immediate"))
	h.addClass(newClass("late", storage.NoProvisioner, storage.WaitForFirstConsumer))
	h.addClass(newClass("local", "monoplane.dev/local", storage.WaitForFirstConsumer))
	h.server.React(func(_ context.Context, method string, _ any) error {
		switch h.n(12) {
		case 0:
			return apierrors.New(apierrors.ServiceUnavailable, "chaos in %s", method)
		case 1:
			time.Sleep(time.Duration(h.n(300)) * time.Millisecond) // virtual
		}
		return nil
	})
	for range 120 {
		h.step()
		time.Sleep(time.Duration(h.n(200)) * time.Millisecond) // virtual
		if h.n(4) == 0 {
			synctest.Wait()
		}
		h.look(false)
	}
	h.server.React(nil)
	time.Sleep(5 * time.Minute) // virtual: the longest back-off and more
	synctest.Wait()
	h.look(true)
}

// step is what somebody does. Its calls may fail.
func (h *history) step() {
	ctx := context.Background()
	class := []string{"", "now", "late", "local"}[h.n(4)]
	claim, volume := fmt.Sprint("c", h.n(6)), fmt.Sprint("v", h.n(6))
	size := []string{"1Gi", "2Gi", "3Gi"}[h.n(3)]
	switch h.n(10) {
	case 0, 1:
		o := newClaim(claim, size, "RWO", class)
		if h.n(4) == 0 {
			o.Spec.VolumeName = volume
		}
		_, _ = h.c.PersistentVolumeClaims.Create(ctx,
			&corev1rpc.CreatePersistentVolumeClaimRequest{Namespace: "ns", Object: o})
	case 2, 3:
		v := newVolume(volume, size, []string{"RWO", "RWO,ROX"}[h.n(2)], class, policy([]string{"Retain", "Delete"}[h.n(2)]))
		if h.n(4) == 0 {
			claimed("ns", claim, "")(v)
		}
		_, _ = h.c.PersistentVolumes.Create(ctx, &corev1rpc.CreatePersistentVolumeRequest{Object: v})
	case 4:
		_, _ = h.c.PersistentVolumeClaims.Delete(ctx, &metav1.DeleteRequest{Namespace: "ns", Name: claim})
	case 5:
		_, _ = h.c.PersistentVolumes.Delete(ctx, &metav1.DeleteRequest{Name: volume})
	case 6: // a user makes a volume free again
		h.change(volume, func(v *corev1.PersistentVolume) bool {
			v.Spec.ClaimRef = nil
			return v.GetStatus().GetPhase() == "Released" || v.GetStatus().GetPhase() == "Failed"
		})
	case 7, 8: // the scheduler chooses a volume
		o, err := h.c.PersistentVolumeClaims.Get(ctx, &metav1.GetRequest{Namespace: "ns", Name: claim})
		if err != nil || o.GetSpec().GetVolumeName() != "" || storage.ClassOfClaim(o) != "late" {
			return
		}
		h.change(volume, func(v *corev1.PersistentVolume) bool {
			free := v.Spec.ClaimRef == nil && storage.ClassOfVolume(v) == "late" && storage.NewWish(o).Holds(v, storage.Size(v))
			v.Spec.ClaimRef = storage.Reference(o)
			storage.Annotate(v, storage.BoundByController, "yes")
			return free
		})
	case 9: // the scheduler chooses a node
		o, err := h.c.PersistentVolumeClaims.Get(ctx, &metav1.GetRequest{Namespace: "ns", Name: claim})
		if err != nil || o.GetSpec().GetVolumeName() != "" || storage.ClassOfClaim(o) != "local" {
			return
		}
		o = object.Clone(o)
		selected([]string{"n1", "n1", "gone"}[h.n(3)])(o)
		_, _ = h.c.PersistentVolumeClaims.Update(ctx, &corev1rpc.UpdatePersistentVolumeClaimRequest{Object: o})
	}
	switch h.n(20) {
	case 0:
		h.server.Cut()
	case 1:
		h.server.Expire()
		h.server.Cut()
	}
}

func (h *history) change(volume string, change func(*corev1.PersistentVolume) bool) {
	v, err := h.c.PersistentVolumes.Get(context.Background(), &metav1.GetRequest{Name: volume})
	if err != nil {
		return
	}
	if v = object.Clone(v); change(v) {
		_, _ = h.c.PersistentVolumes.Update(context.Background(), &corev1rpc.UpdatePersistentVolumeRequest{Object: v})
	}
}

// look checks what must hold at any time and, when all is quiet, then.
func (h *history) look(quiet bool) {
	claims, err := h.c.PersistentVolumeClaims.List(context.Background(), &metav1.ListRequest{})
	if err != nil {
		return // chaos
	}
	volumes, err := h.c.PersistentVolumes.List(context.Background(), &metav1.ListRequest{})
	if err != nil {
		return
	}
	byName := map[string]*corev1.PersistentVolume{}
	for _, v := range volumes.GetItems() {
		byName[v.GetMetadata().GetName()] = v
	}
	owners := map[string]string{}
	for _, o := range claims.GetItems() {
		if o.GetStatus().GetPhase() != "Bound" {
			continue
		}
		name := o.GetSpec().GetVolumeName()
		if other, taken := owners[name]; taken && quiet {
			h.Errorf("seed %d: volume %s is bound to %s and %s", h.seed, name, other, o.GetMetadata().GetName())
		}
		owners[name] = o.GetMetadata().GetName()
		uid := o.GetMetadata().GetUid()
		if was, ok := h.took[uid]; ok && was != name {
			h.Errorf("seed %d: claim %s was bound to %s, then to %s", h.seed, o.GetMetadata().GetName(), was, name)
		}
		h.took[uid] = name
		v := byName[name]
		if quiet && (v.GetSpec().GetClaimRef().GetUid() != uid || v.GetStatus().GetPhase() != "Bound") {
			h.Errorf("seed %d: claim %s is bound to %s, which is %v", h.seed, o.GetMetadata().GetName(), name, v)
		}
	}
	if !quiet {
		return
	}
	for name, v := range byName {
		if v.GetStatus().GetPhase() == "Bound" && owners[name] == "" {
			h.Errorf("seed %d: volume %s is bound, but no claim has it: %v\n%v", h.seed, name, v, claims.GetItems())
		}
		if v.GetStatus().GetPhase() == "" {
			h.Errorf("seed %d: nobody looked at volume %s", h.seed, name)
		}
	}
	for _, o := range claims.GetItems() {
		if o.GetMetadata().GetDeletionTimestamp() != nil || o.GetStatus().GetPhase() == "" {
			h.Errorf("seed %d: nobody looked at claim %v", h.seed, o)
		}
	}
}
