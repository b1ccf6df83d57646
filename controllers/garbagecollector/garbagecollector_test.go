package garbagecollector_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "monoplane.dev/api/autoscaling/v1"
	autoscalingv1rpc "monoplane.dev/api/autoscaling/v1/rpc"
	coordinationv1 "monoplane.dev/api/coordination/v1"
	coordinationv1rpc "monoplane.dev/api/coordination/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
)

// Dependents go after their owner, and theirs after them. spec: OBJ-12
func TestBackground(t *testing.T) {
	inWorld(t, func(w *world) {
		owner := w.configMap("owner")
		child := w.configMap("child", ref(owner, "controller", "block"))
		grandchild := w.configMap("grandchild", ref(child))
		w.node("n1")
		pod := w.pod("pod", "n1", ref(owner))
		other := w.configMap("other")
		theirs := w.configMap("theirs", ref(other))
		w.settle()
		w.alive(owner, child, grandchild, pod, other, theirs)
		w.remove(owner, "")
		w.settle()
		w.gone(owner, child, grandchild)
		w.alive(other, theirs)
		// A pod is given its grace.
		if m := w.get(pod); m.GetDeletionTimestamp() == nil || m.GetDeletionGracePeriodSeconds() != 30 {
			t.Errorf("pod: %v", m)
		}
		if n := w.counted("garbagecollector_controller_actions_total"); n != 3 {
			t.Errorf("%v actions counted", n)
		}
	})
}

// An owner may be named in any version in which it is served. spec: OBJ-12
func TestOwnerNamedInAnotherVersion(t *testing.T) {
	inWorld(t, func(w *world) {
		owner, err := w.c.HorizontalPodAutoscalersV1.Create(w.Context(),
			&autoscalingv1rpc.CreateHorizontalPodAutoscalerRequest{Object: &autoscalingv1.HorizontalPodAutoscaler{
				Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "owner"},
				Spec: &autoscalingv1.HorizontalPodAutoscalerSpec{
					ScaleTargetRef: &autoscalingv1.CrossVersionObjectReference{
						ApiVersion: "apps/v1", Kind: "Deployment", Name: "web",
					},
					MaxReplicas: 5,
				},
			}})
		w.must(err)
		child := w.configMap("child", ref(owner))
		w.settle()
		w.alive(child)
		if events := w.eventsOf(child.Metadata.Uid); len(events) != 0 {
			t.Errorf("events of the dependent: %q", events)
		}
		_, err = w.c.HorizontalPodAutoscalersV1.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: "owner"})
		w.must(err)
		w.settle()
		w.gone(child)
	})
}

// An owner waits for the dependents that block it, and for no others; what has dependents waits for them in turn.
// spec: OBJ-12
func TestForeground(t *testing.T) {
	inWorld(t, func(w *world) {
		owner := w.configMap("owner")
		w.node("n1")
		blocking := w.pod("blocking", "n1", ref(owner, "block"))
		free := w.pod("free", "n1", ref(owner))
		child := w.configMap("child", ref(owner, "block"))
		grandchild := w.pod("grandchild", "n1", ref(child, "block"))
		w.settle() // The collector learns of each kind in its own time.
		w.remove(owner, "Foreground")
		w.settle()
		w.waits(owner, "foregroundDeletion")
		w.waits(child, "foregroundDeletion")
		w.waits(blocking)
		w.waits(free)
		w.waits(grandchild)
		// One that comes late has to go, too.
		late := w.configMap("late", ref(owner, "block"))
		w.settle()
		w.gone(late)
		w.waits(owner, "foregroundDeletion")

		force := func(p *corev1.Pod) {
			zero := int64(0)
			_, err := w.c.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: p.Metadata.Name,
				GracePeriodSeconds: &zero})
			w.must(err)
		}
		force(blocking)
		w.settle()
		w.waits(owner, "foregroundDeletion")
		force(grandchild)
		w.settle()
		w.gone(grandchild, child, owner)
		w.waits(free)

		// With nothing to wait for it goes at once.
		alone := w.configMap("alone")
		w.remove(alone, "Foreground")
		w.settle()
		w.gone(alone)
	})
}

// A blocking dependent that is held by somebody else holds its owner; one that gives it up does not. spec: OBJ-12
func TestForegroundUnblocked(t *testing.T) {
	inWorld(t, func(w *world) {
		owner := w.configMap("owner")
		held := w.configMap("held", ref(owner, "block"))
		w.patch(held, `{"finalizers":["example.com/hold"]}`)
		w.remove(owner, "Foreground")
		w.settle()
		w.waits(owner, "foregroundDeletion")
		w.waits(held, "example.com/hold")
		w.patch(held, fmt.Sprintf(`{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}`,
			owner.Metadata.Uid))
		w.settle()
		w.gone(owner)
		w.waits(held, "example.com/hold")
		w.patch(held, `{"finalizers":null}`)
		w.settle()
		w.gone(held)

		// An owner that changes its mind: the dependents that are left stay.
		owner = w.configMap("owner")
		held = w.configMap("held", ref(owner, "block"))
		w.patch(held, `{"finalizers":["example.com/hold"]}`)
		w.remove(owner, "Foreground")
		w.settle()
		w.remove(owner, "Background")
		w.settle()
		w.gone(owner)
		w.waits(held, "example.com/hold")
	})
}

// Who is orphaned stays, without the reference, and keeps its others. spec: OBJ-12
func TestOrphan(t *testing.T) {
	inWorld(t, func(w *world) {
		owner, second := w.configMap("owner"), w.configMap("second")
		child := w.configMap("child", ref(owner, "controller", "block"))
		both := w.configMap("both", ref(second), ref(owner))
		grandchild := w.configMap("grandchild", ref(child))
		node := w.node("n1")
		w.remove(owner, "Orphan")
		w.settle()
		w.gone(owner)
		w.alive(child, both, grandchild, second)
		w.owners(child)
		w.owners(both, "second")
		w.owners(grandchild, "child")

		// An owner without a namespace has dependents in all.
		here, there := w.configMap("here", ref(node)), w.configMap("other/there", ref(node))
		w.remove(node, "Orphan")
		w.settle()
		w.gone(node)
		w.alive(here, there)
		w.owners(here)
		w.owners(there)
	})
}

// Of several owners one that is there is enough; references to the others are taken away. spec: OBJ-12
func TestSeveralOwners(t *testing.T) {
	inWorld(t, func(w *world) {
		first, second, third := w.configMap("first"), w.configMap("second"), w.configMap("third")
		child := w.configMap("child", ref(first), ref(second, "block"), ref(third))
		w.remove(first, "")
		w.settle()
		w.owners(child, "second", "third")
		// One that waits in the foreground would wait for ever.
		w.remove(second, "Foreground")
		w.settle()
		w.gone(second)
		w.alive(child)
		w.owners(child, "third")
		w.remove(third, "")
		w.settle()
		w.gone(child)
	})
}

// An owner that is not there, or is another by its uid, its kind or its namespace, is no owner. A dependent without
// any goes, whether it was made before the collector or after. spec: OBJ-12
func TestAbsentOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		before := w.dangling("before")
		solid := w.configMap("solid")
		child := w.configMap("child", ref(solid))
		stop := w.start()
		w.settle()
		w.gone(before...)
		w.alive(solid, child)
		after := w.dangling("after")
		w.settle()
		w.gone(after...)
		w.alive(solid, child)
		stop()

		// The owner is made again under its name while nobody collects.
		w.remove(solid, "")
		again := w.configMap("solid")
		defer w.start()()
		w.settle()
		w.gone(child)
		w.alive(again)
	})
}

// References that nobody can judge keep the object, and are told about. spec: OBJ-12
func TestInvalidReferences(t *testing.T) {
	inWorld(t, func(w *world) {
		elsewhere := w.configMap("other/elsewhere")
		w.settle()
		unknown := w.configMap("unknown", &metav1.OwnerReference{ApiVersion: "example.com/v1", Kind: "Widget", Name: "w",
			Uid: "u"}, &metav1.OwnerReference{ApiVersion: "v1", Kind: "ConfigMap", Name: "none", Uid: "u"})
		yes := w.node("n1")
		_, err := w.c.Nodes.Create(w.Context(), &corev1rpc.CreateNodeRequest{Object: &corev1.Node{
			Metadata: &metav1.ObjectMeta{Name: "n2", OwnerReferences: []*metav1.OwnerReference{ref(elsewhere)}}}})
		w.must(err)
		cluster, err := w.c.Nodes.Get(w.Context(), &metav1.GetRequest{Name: "n2"})
		w.must(err)
		abroad := w.configMap("abroad", ref(elsewhere))
		solid := w.configMap("solid", ref(elsewhere), ref(yes))
		blocked := w.configMap("blocked")
		_, err = w.c.Nodes.Create(w.Context(), &corev1rpc.CreateNodeRequest{Object: &corev1.Node{
			Metadata: &metav1.ObjectMeta{Name: "n3", OwnerReferences: []*metav1.OwnerReference{ref(blocked, "block")}}}})
		w.must(err)
		w.settle()
		// What cannot be a dependent does not block.
		w.remove(blocked, "Foreground")
		w.settle()
		w.gone(blocked)
		w.alive(unknown, cluster, elsewhere, solid)
		w.owners(solid, "n1")
		// As in Kubernetes, a reference to another namespace is one to nothing.
		w.gone(abroad)
		for o, want := range map[interface {
			GetMetadata() *metav1.ObjectMeta
		}]string{
			unknown: "Warning OwnerRefUnknownKind: ownerRef [example.com/v1/Widget, name: w, uid: u]",
			cluster: "Warning OwnerRefInvalidNamespace: ownerRef [v1/ConfigMap, name: elsewhere",
			abroad:  "Warning OwnerRefInvalidNamespace: ownerRef [v1/ConfigMap, name: elsewhere",
			solid:   "Warning OwnerRefInvalidNamespace: ownerRef [v1/ConfigMap, name: elsewhere",
		} {
			if got := w.eventsOf(o.GetMetadata().GetUid()); len(got) != 1 || !strings.HasPrefix(got[0], want) {
				t.Errorf("%s has the events %q, want %q", o.GetMetadata().GetName(), got, want)
			}
		}
		// Without the reference that nobody can judge, the others are.
		w.patch(unknown, `{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"u"}]}`)
		w.settle()
		w.gone(unknown)
	})
}

// An owner in the foreground waits for who names its uid, even as that of another kind. spec: OBJ-12
func TestBlockedByUID(t *testing.T) {
	inWorld(t, func(w *world) {
		owner := w.node("owner")
		wrong := ref(owner, "block")
		wrong.ApiVersion, wrong.Kind = "coordination.k8s.io/v1", "Lease"
		dependent, err := w.c.Nodes.Create(w.Context(), &corev1rpc.CreateNodeRequest{Object: &corev1.Node{
			Metadata: &metav1.ObjectMeta{Name: "dependent", OwnerReferences: []*metav1.OwnerReference{wrong}}}})
		w.must(err)
		w.remove(owner, "Foreground")
		w.settle()
		w.waits(owner, "foregroundDeletion")
		w.alive(dependent)
		w.remove(dependent, "")
		w.settle()
		w.gone(owner)
	})
}

// Objects that own each other go together. spec: OBJ-12
func TestCycles(t *testing.T) {
	for _, policy := range []string{"Background", "Foreground", "Orphan"} {
		t.Run(policy, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a := w.configMap("a")
				b := w.configMap("b", ref(a, "block"))
				c := w.configMap("c", ref(b, "block"))
				w.patch(a, fmt.Sprintf(`{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":%q,`+
					`"blockOwnerDeletion":true}]}`, c.Metadata.Uid))
				self := w.configMap("self")
				w.patch(self, fmt.Sprintf(`{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"self","uid":%q,`+
					`"blockOwnerDeletion":true}]}`, self.Metadata.Uid))
				w.settle()
				w.alive(a, b, c, self)
				w.remove(a, policy)
				w.remove(self, policy)
				if policy == "Foreground" {
					// Two of them by somebody else, unless the collector was there before.
					if err := w.kinds["ConfigMap"].Delete(w.Context(), "ns", "c", &metav1.DeleteOptions{
						PropagationPolicy: &policy}); !apierrors.Is(err, apierrors.NotFound) {
						w.must(err)
					}
				}
				w.settle()
				w.gone(a)
				if policy == "Orphan" {
					w.alive(b, c)
					w.owners(b)
					w.gone(self)
					return
				}
				w.gone(b, c, self)
			})
		})
	}
}

// The collector sees of Secrets what it needs, and may remove what lives outside of namespaces. spec: OBJ-12
func TestKinds(t *testing.T) {
	inWorld(t, func(w *world) {
		secret := func(name string, owners ...*metav1.OwnerReference) *corev1.Secret {
			o, err := w.c.Secrets.Create(w.Context(), &corev1rpc.CreateSecretRequest{Object: &corev1.Secret{
				Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: owners},
				Data:     map[string][]byte{"k": []byte("v")}}})
			w.must(err)
			return o
		}
		for _, policy := range []string{"Background", "Foreground", "Orphan"} {
			owner, second := secret("owner"), secret("second")
			child := secret("child", ref(owner, "block"), ref(second))
			only := secret("only", ref(owner, "block"))
			w.remove(owner, policy)
			w.settle()
			w.gone(owner)
			w.alive(child)
			w.owners(child, "second")
			if policy == "Orphan" {
				w.owners(only)
				w.remove(only, "")
			}
			w.gone(only)
			w.remove(second, policy)
			w.settle()
			w.gone(second)
			if policy == "Orphan" {
				w.remove(child, "")
			}
			w.gone(child)
		}

		node := w.node("n1")
		namespace, err := w.c.Namespaces.Create(w.Context(), &corev1rpc.CreateNamespaceRequest{Object: &corev1.Namespace{
			Metadata: &metav1.ObjectMeta{Name: "owned", OwnerReferences: []*metav1.OwnerReference{ref(node)}}}})
		w.must(err)
		lease, err := w.c.Leases.Create(w.Context(), &coordinationv1rpc.CreateLeaseRequest{Object: &coordinationv1.Lease{
			Metadata: &metav1.ObjectMeta{Name: "l", Namespace: "ns", OwnerReferences: []*metav1.OwnerReference{ref(node)}}}})
		w.must(err)
		account, err := w.c.ServiceAccounts.Create(w.Context(), &corev1rpc.CreateServiceAccountRequest{
			Object: &corev1.ServiceAccount{Metadata: &metav1.ObjectMeta{Name: "a", Namespace: "ns",
				OwnerReferences: []*metav1.OwnerReference{ref(lease)}}}})
		w.must(err)
		w.remove(node, "")
		w.settle()
		w.gone(node, lease, account)
		if m := w.get(namespace); m.GetDeletionTimestamp() == nil {
			t.Errorf("namespace: %v", m)
		}
	})
}

// What fails is tried again, and nothing is deleted on what could not be read. spec: OBJ-12
func TestFailures(t *testing.T) {
	inWorld(t, func(w *world) {
		owner := w.configMap("owner")
		child := w.configMap("child", ref(owner))
		var down atomic.Bool
		down.Store(true)
		w.server.React(func(_ context.Context, method string, req any) error {
			get, ok := req.(*metav1.GetRequest)
			if ok && down.Load() && method == corev1rpc.ConfigMaps_Get_FullMethodName && get.Name == "owner" {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		w.remove(owner, "")
		w.settle()
		w.alive(child)
		down.Store(false)
		time.Sleep(10 * time.Minute) // virtual
		w.settle()
		w.gone(child)
	})
}

// A dependent that is replaced while its reference is taken away is none: what has its name now is left alone, and the
// owner goes, without a word in the log. spec: OBJ-12
func TestDependentThatIsReplaced(t *testing.T) {
	w := (*world)(nil)
	inWorld(t, func(in *world) {
		w = in
		owner := w.configMap("owner")
		child := w.configMap("child", ref(owner))
		var replaced *corev1.ConfigMap
		w.server.React(func(_ context.Context, method string, req any) error {
			p, ok := req.(*metav1.PatchRequest)
			if ok && method == corev1rpc.ConfigMaps_Patch_FullMethodName && p.Name == "child" && replaced == nil {
				w.remove(child, "")
				replaced = w.configMap("child")
			}
			return nil
		})
		w.remove(owner, "Orphan")
		w.settle()
		w.gone(owner)
		w.alive(replaced)
		if replaced == nil {
			t.Error("nobody tried to take the reference")
		}
	})
	if w.warnings.Len() > 0 {
		t.Errorf("the collector warns of\n%s", &w.warnings)
	}
}

// What changes all the time goes nevertheless, but not if its owners are what changes. spec: OBJ-12, DEL-11
func TestRestlessDependents(t *testing.T) {
	inWorld(t, func(w *world) {
		owner, next := w.configMap("owner"), w.configMap("next")
		restless, adopted := w.configMap("restless", ref(owner)), w.configMap("adopted", ref(owner))
		var changed atomic.Bool
		w.server.React(func(_ context.Context, method string, req any) error {
			d, ok := req.(*metav1.DeleteRequest)
			if !ok || method != corev1rpc.ConfigMaps_Delete_FullMethodName || d.GetOptions().GetPreconditions() == nil {
				return nil
			}
			switch d.Name {
			case "restless":
				w.patch(restless, fmt.Sprintf(`{"labels":{"at":"%d"}}`, time.Now().UnixNano()))
			case "adopted":
				if !changed.Swap(true) {
					w.patch(adopted, fmt.Sprintf(`{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"next",`+
						`"uid":%q}]}`, next.Metadata.Uid))
				}
			}
			return nil
		})
		w.remove(owner, "")
		w.settle()
		w.gone(restless)
		w.alive(adopted)
		if !changed.Load() {
			t.Error("nobody tried to delete what was adopted")
		}
	})
}

// A dependent that comes while the watch of its owner's kind is lost, and whose owner comes and goes meanwhile, goes.
func TestOwnerThatWasNeverSeen(t *testing.T) {
	inWorld(t, func(w *world) {
		var down atomic.Bool
		down.Store(true)
		w.server.React(func(_ context.Context, method string, _ any) error {
			if down.Load() && method == corev1rpc.Secrets_Watch_FullMethodName {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		w.server.Cut()
		owner, err := w.c.Secrets.Create(w.Context(), &corev1rpc.CreateSecretRequest{Object: &corev1.Secret{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "owner"}}})
		w.must(err)
		child := w.configMap("child", ref(owner))
		w.settle()
		w.alive(child)
		w.remove(owner, "")
		w.server.Expire()
		down.Store(false)
		w.settle()
		w.gone(child)
	})
}

// Two collectors do what one does.
func TestTwoCollectors(t *testing.T) {
	inWorld(t, func(w *world) {
		defer w.start()()
		owner := w.configMap("owner")
		all := []*corev1.ConfigMap{}
		for i := range 20 {
			all = append(all, w.configMap(fmt.Sprint("c", i), ref(owner, "block")))
		}
		w.remove(owner, "Foreground")
		w.settle()
		w.gone(owner)
		for _, o := range all {
			w.gone(o)
		}
	})
}
