package history_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/labels"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/history"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server with a ReplicaSet, whose pods play no part, and the history of it.
type world struct {
	*testing.T
	server  *apitest.Server
	owner   *appsv1.ReplicaSet
	control *history.Control
	count   int32
}

var byApp = labels.SelectorFromSet(labels.Set{"app": "web"})

func inWorld(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.Start(t)}
		w.server.Namespaces(t, "ns")
		w.owner = w.makeOwner("web")
		shared := controller.NewShared(w.server.Admin(), nil)
		revisions := controller.Of[*appsv1.ControllerRevision](shared, controller.ByController, controller.Unmanaged)
		w.control = history.New(w.server.Admin().ControllerRevisions, revisions)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- shared.Run(ctx) }()
		if err := controller.WaitForSync(ctx, revisions); err != nil {
			t.Fatal(err)
		}
		f(w)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func (w *world) makeOwner(name string) *appsv1.ReplicaSet {
	w.Helper()
	made, err := w.server.Admin().ReplicaSets.Create(w.Context(), &appsv1rpc.CreateReplicaSetRequest{
		Object: &appsv1.ReplicaSet{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec: &appsv1.ReplicaSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template("image:1"),
			},
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	return made
}

func template(image string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		Metadata: &metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: image}}},
	}
}

func patchOf(t *testing.T, image string) []byte {
	t.Helper()
	data, err := history.TemplatePatch(template(image))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (w *world) list() []*appsv1.ControllerRevision {
	w.Helper()
	if err := w.control.Settle(w.Context(), w.owner.GetMetadata().GetUid()); err != nil {
		w.Fatal(err)
	}
	all, err := w.control.List(w.Context(), w.owner, byApp, func(ctx context.Context) (object.Object, error) {
		return w.server.Admin().ReplicaSets.Get(ctx, &metav1.GetRequest{Namespace: "ns",
			Name: w.owner.GetMetadata().GetName()})
	})
	if err != nil {
		w.Fatal(err)
	}
	return all
}

// wants compares the revisions, as "NUMBER:IMAGE".
func (w *world) wants(want ...string) {
	w.Helper()
	var got []string
	for _, r := range w.list() {
		t, err := history.Template(r.GetData().GetRaw())
		if err != nil {
			w.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%d:%s", r.GetRevision(), t.GetSpec().GetContainers()[0].GetImage()))
	}
	if !slices.Equal(got, want) {
		w.Errorf("revisions %v, want %v", got, want)
	}
}

func (w *world) newest(image string) (*appsv1.ControllerRevision, error) {
	w.Helper()
	known := w.list()
	newest, all, count, err := w.control.Newest(w.Context(), w.owner, known, history.State{
		Data: patchOf(w.T, image), Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"cause": image},
		Collisions: w.count,
	})
	w.count = count
	if err == nil && all[len(all)-1] != newest {
		w.Errorf("the newest is not the last of %v", all)
	}
	return newest, err
}

func (w *world) rolls(image string) *appsv1.ControllerRevision {
	w.Helper()
	r, err := w.newest(image)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// Each state has one revision, and a state that comes back has the newest number. spec: WORK-2
func TestRevisions(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.rolls("image:1")
		m := first.GetMetadata()
		hash := m.GetLabels()[history.HashLabel]
		if m.GetName() != "web-"+hash || m.GetAnnotations()["cause"] != "image:1" ||
			controller.ManagerOf(first).GetUid() != w.owner.GetMetadata().GetUid() {
			w.Errorf("metadata %v", m)
		}
		w.wants("1:image:1")
		if w.rolls("image:1").GetMetadata().GetUid() != m.GetUid() {
			w.Error("the state got another revision")
		}
		w.rolls("image:2")
		w.rolls("image:3")
		if again := w.rolls("image:1"); again.GetMetadata().GetUid() != m.GetUid() || again.GetRevision() != 4 {
			w.Errorf("revision after a rollback: %v", again)
		}
		w.wants("2:image:2", "3:image:3", "4:image:1")
	})
}

// A name that is another's makes the name another; a revision whose creation was not answered is found.
func TestCollisions(t *testing.T) {
	inWorld(t, func(w *world) {
		other := w.makeOwner("other")
		taken := history.Name("web", history.Hash(patchOf(t, "image:1"), 0))
		_, err := w.server.Admin().ControllerRevisions.Create(w.Context(), &appsv1rpc.CreateControllerRevisionRequest{
			Object: &appsv1.ControllerRevision{
				Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: taken, Labels: map[string]string{"app": "web"},
					OwnerReferences: []*metav1.OwnerReference{owned.Reference(other)}},
				Data: &metav1.RawExtension{Raw: patchOf(t, "image:1")},
			},
		})
		if err != nil {
			w.Fatal(err)
		}
		if r := w.rolls("image:1"); r.GetMetadata().GetName() == taken || w.count != 1 {
			w.Errorf("revision %v after %d collisions", r.GetMetadata(), w.count)
		}

		lost := errors.New("the answer is lost")
		var once atomic.Bool
		w.server.After(func(_ context.Context, method string, _, _ any) error {
			if method == appsv1rpc.ControllerRevisions_Create_FullMethodName && once.CompareAndSwap(false, true) {
				return lost
			}
			return nil
		})
		known := w.list()
		for try := range 2 { // both times by what was known before
			_, _, count, err := w.control.Newest(w.Context(), w.owner, known, history.State{
				Data: patchOf(w.T, "image:2"), Labels: map[string]string{"app": "web"}, Collisions: w.count,
			})
			if (err == nil) != (try == 1) || count != 1 {
				w.Errorf("try %d: %v, %d collisions", try, err, count)
			}
		}
		w.wants("1:image:1", "2:image:2")
	})
}

// Revisions that nobody manages are adopted, those that the selector does not take any more released.
func TestAdoptsAndReleases(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.rolls("image:1")
		_ = w.list()
		change := func(patch string) {
			_, err := w.server.Admin().ControllerRevisions.Patch(w.Context(), &metav1.PatchRequest{
				Namespace: "ns", Name: r.GetMetadata().GetName(), Patch: []byte(patch),
				PatchType: "application/merge-patch+json",
			})
			if err != nil {
				w.Fatal(err)
			}
			synctest.Wait()
		}
		change(`{"metadata":{"labels":{"app":"other"}}}`)
		w.wants()
		change(`{"metadata":{"labels":{"app":"web"}}}`)
		w.wants("1:image:1")
		if got := w.list()[0]; controller.ManagerOf(got).GetUid() != w.owner.GetMetadata().GetUid() {
			w.Errorf("it was not adopted: %v", got)
		}
	})
}

// What is beyond the limit goes, the oldest first, and never what is in use.
func TestTruncate(t *testing.T) {
	inWorld(t, func(w *world) {
		live := map[string]bool{}
		for i := range 5 {
			r := w.rolls(fmt.Sprint("image:", i))
			live[r.GetMetadata().GetName()] = i == 0 || i == 4
		}
		truncate := func(limit int) {
			if err := w.control.Truncate(w.Context(), w.owner, w.list(), live, limit); err != nil {
				w.Fatal(err)
			}
		}
		truncate(-1)
		truncate(3)
		w.wants("1:image:0", "2:image:1", "3:image:2", "4:image:3", "5:image:4")
		truncate(1)
		w.wants("1:image:0", "4:image:3", "5:image:4")
		truncate(0)
		w.wants("1:image:0", "5:image:4")
	})
}

// One that changed since it was judged is not removed.
func TestTruncateIsByRevision(t *testing.T) {
	inWorld(t, func(w *world) {
		w.rolls("image:1")
		all := w.list()
		next := all[0].Shallow()
		next.Revision = 7
		if _, err := w.server.Admin().ControllerRevisions.Update(w.Context(),
			&appsv1rpc.UpdateControllerRevisionRequest{Object: next}); err != nil {
			w.Fatal(err)
		}
		if err := w.control.Truncate(w.Context(), w.owner, all, nil, 0); !apierrors.Is(err, apierrors.Conflict) {
			w.Errorf("removed by what was known before: %v", err)
		}
	})
}

func TestEqual(t *testing.T) {
	const state = `{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"a":"b"}},` +
		`"spec":{"containers":[{"image":"x","name":"main","resources":{"requests":{"cpu":"1000m"}}}]}}}}`
	for other, want := range map[string]bool{
		state:                                   true,
		strings.ReplaceAll(state, ",", ", "):    true,
		strings.Replace(state, "1000m", "1", 1): true,
		strings.Replace(state, `"creationTimestamp":null,`, "", 1): true,
		strings.Replace(state, `"image":"x"`, `"image":"y"`, 1):    false,
		`{"spec":{}}`: false, `{`: false, "": false,
	} {
		if history.Equal([]byte(state), []byte(other)) != want {
			t.Errorf("%s: want %v", other, want)
		}
	}
	if !history.Equal([]byte(`{"a":1}`), []byte(`{ "a": 1 }`)) || history.Equal([]byte(`{"a":1}`), []byte(`{"a":2}`)) {
		t.Error("states that are no templates")
	}
}

func TestNames(t *testing.T) {
	if got := history.Name(strings.Repeat("a", 250), "hash"); len(got) != 228 {
		t.Errorf("%d characters", len(got))
	}
	if history.Hash([]byte("a"), 0) == history.Hash([]byte("a"), 1) {
		t.Error("collisions change nothing")
	}
}
