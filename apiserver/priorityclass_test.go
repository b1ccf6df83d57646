package apiserver_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
)

func newClass(name string, value int32) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{Metadata: &metav1.ObjectMeta{Name: name}, Value: value}
}

func defaultClass(name string, value int32) *schedulingv1.PriorityClass {
	class := newClass(name, value)
	class.GlobalDefault = true
	return class
}

func createClass(t testing.TB, by client, class *schedulingv1.PriorityClass) (*schedulingv1.PriorityClass, error) {
	return by.PriorityClasses.Create(ctx(t), &schedulingv1rpc.CreatePriorityClassRequest{Object: class})
}

func updateClass(t testing.TB, by client, class *schedulingv1.PriorityClass) (*schedulingv1.PriorityClass, error) {
	return by.PriorityClasses.Update(ctx(t), &schedulingv1rpc.UpdatePriorityClassRequest{Object: class})
}

func deleteClass(t testing.TB, by client, name string) error {
	_, err := by.PriorityClasses.Delete(ctx(t), &metav1.DeleteRequest{Name: name})
	return err
}

// refused checks the reason and a part of the text of an error; "" wants none.
func refused(t testing.TB, err error, want apierrors.Reason, text string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && (!apierrors.Is(err, want) || !strings.Contains(err.Error(), text)):
		t.Errorf("got %v, want %s with %q", err, want, text)
	}
}

// spec: PRIO-1
func TestSystemPriorityClasses(t *testing.T) {
	c := start(t)
	admin := c.admin()
	want := map[string]int32{"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
	list := must(admin.PriorityClasses.List(ctx(t), &metav1.ListRequest{}))(t)
	for _, class := range list.Items {
		name := class.Metadata.Name
		if class.Value != want[name] || class.GlobalDefault || class.GetPreemptionPolicy() != "PreemptLowerPriority" ||
			class.Description == "" || class.Metadata.Generation != 1 {
			t.Errorf("%v", class)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	// One that is missing, which only somebody at the store can bring about, is there when the server starts again.
	gone, kept := list.Items[0], list.Items[1]
	key := store.Key{Kind: schedulingv1.PriorityClassKind, Name: gone.Metadata.Name}
	must(c.store.Commit(ctx(t), store.Txn{Ops: []store.Op{{Key: key, Expect: revisionOf(t, gone)}}}))(t)
	again := start(t, func(cfg *apiserver.Config) { cfg.Store = c.store }).admin()
	must(again.PriorityClasses.Get(ctx(t), &metav1.GetRequest{Name: gone.Metadata.Name}))(t)
	same := must(again.PriorityClasses.Get(ctx(t), &metav1.GetRequest{Name: kept.Metadata.Name}))(t)
	if same.Metadata.Uid != kept.Metadata.Uid {
		t.Errorf("the class that was there was made again: %v", same)
	}
}

func revisionOf(t testing.TB, o object.Object) int64 {
	t.Helper()
	return must(strconv.ParseInt(o.GetMetadata().GetResourceVersion(), 10, 64))(t)
}

// spec: PRIO-1, PRIO-4
func TestPriorityClassRules(t *testing.T) {
	c := start(t)
	admin := c.admin()
	refused(t, second(createClass(t, admin, newClass("most", 1_000_000_000))), "", "")
	refused(t, second(createClass(t, admin, newClass("least", -2147483648))), "", "")
	refused(t, second(createClass(t, admin, newClass("more", 1_000_000_001))), apierrors.Invalid,
		"value: Forbidden: maximum allowed value of a user defined priority is 1000000000")
	refused(t, second(createClass(t, admin, newClass("system-mine", 1))), apierrors.Invalid,
		"priority class names with 'system-' prefix are reserved for system use only. error: system-mine is not a known "+
			"system priority class")

	class := must(createClass(t, admin, newClass("high", 1000)))(t)
	for _, x := range []struct {
		name   string
		change func(*schedulingv1.PriorityClass)
		want   apierrors.Reason
		text   string
	}{
		{"description", func(n *schedulingv1.PriorityClass) { n.Description = "important" }, "", ""},
		{"labels", func(n *schedulingv1.PriorityClass) { n.Metadata.Labels = map[string]string{"a": "b"} }, "", ""},
		{"value", func(n *schedulingv1.PriorityClass) { n.Value = 5 }, apierrors.Invalid,
			"value: Forbidden: may not be changed in an update."},
		{"policy", func(n *schedulingv1.PriorityClass) { n.PreemptionPolicy = ptr("Never") }, apierrors.Invalid,
			"preemptionPolicy"},
	} {
		t.Run(x.name, func(t *testing.T) {
			next := clone(class)
			next.Metadata.ResourceVersion = ""
			x.change(next)
			refused(t, second(updateClass(t, admin, next)), x.want, x.text)
		})
	}
	// Components read classes and write none.
	refused(t, second(c.scheduler().PriorityClasses.List(ctx(t), &metav1.ListRequest{})), "", "")
	refused(t, second(createClass(t, c.scheduler(), newClass("mine", 1))), apierrors.Forbidden, "cannot create resource")
	refused(t, deleteClass(t, c.agent("n1"), "high"), apierrors.Forbidden, "cannot delete resource")
}

// spec: PRIO-1
func TestOneGlobalDefault(t *testing.T) {
	c := start(t)
	admin := c.admin()
	const taken = "PriorityClass base is already marked as default. Only one default can exist"
	base := must(createClass(t, admin, defaultClass("base", 10)))(t)
	refused(t, second(createClass(t, admin, defaultClass("other", 5))), apierrors.Forbidden,
		`"other" is forbidden: `+taken)
	refused(t, second(createClass(t, admin, defaultClass("base", 10))), apierrors.Forbidden, taken)
	other := must(createClass(t, admin, newClass("other", 5)))(t)
	patch := func(name, doc string) error {
		return second(admin.PriorityClasses.Patch(ctx(t), &metav1.PatchRequest{
			Name: name, PatchType: "application/merge-patch+json", Patch: []byte(doc),
		}))
	}
	refused(t, patch("other", `{"globalDefault":true}`), apierrors.Forbidden, taken)
	next := clone(other)
	next.GlobalDefault = true
	refused(t, second(updateClass(t, admin, next)), apierrors.Forbidden, taken)
	// The default itself may be written, and hand over.
	refused(t, patch("base", `{"description":"usual"}`), "", "")
	refused(t, patch("base", `{"globalDefault":false}`), "", "")
	refused(t, patch("other", `{"globalDefault":true}`), "", "")
	refused(t, patch("base", `{"globalDefault":true}`), apierrors.Forbidden,
		"PriorityClass other is already marked as default")
	refused(t, deleteClass(t, admin, "other"), "", "")
	refused(t, patch("base", `{"globalDefault":true}`), "", "")
	if got := must(admin.PriorityClasses.Get(ctx(t),
		&metav1.GetRequest{Name: "base"}))(t); got.Metadata.Generation != base.Metadata.Generation {
		t.Errorf("generation %d", got.Metadata.Generation)
	}
}

// Many clients make classes the global default at once, on creation and by update, and take it back: whatever they do,
// the history of the store has never two at a time.
// spec: PRIO-1
func TestOneGlobalDefaultUnderConcurrency(t *testing.T) { oneGlobalDefault(t, start(t)) }

// The same with every other client at another server of the same etcd.
// spec: PRIO-1
func TestOneGlobalDefaultOfTwoServers(t *testing.T) { oneGlobalDefault(t, startTwo(t)) }

func oneGlobalDefault(t *testing.T, c *cluster) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	from := must(c.store.Revision(ctx(t)))(t)
	var clients sync.WaitGroup
	for worker := range uint64(8) {
		clients.Go(func() {
			r, admin := rand.New(rand.NewPCG(seed, worker)), c.admin()
			for range 40 {
				name := fmt.Sprint("class-", r.IntN(6))
				switch r.IntN(4) {
				case 0:
					_, _ = createClass(t, admin, defaultClass(name, r.Int32N(100)))
				case 1:
					_, _ = createClass(t, admin, newClass(name, r.Int32N(100)))
				case 2:
					_, _ = admin.PriorityClasses.Patch(ctx(t), &metav1.PatchRequest{
						Name: name, PatchType: "application/merge-patch+json",
						Patch: fmt.Appendf(nil, `{"globalDefault":%v}`, r.IntN(2) == 0),
					})
				case 3:
					_ = deleteClass(t, admin, name)
				}
			}
		})
	}
	clients.Wait()
	w := must(c.store.Watch(ctx(t), schedulingv1.PriorityClassKind,
		store.WatchOptions{ResourceVersion: fmt.Sprint(from)}))(t)
	defer w.Stop()
	last := createdLast(t, c.admin())
	defaults := map[string]bool{}
	handovers := 0
	for {
		batch, err := w.Next(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range batch {
			class, name := e.Object.(*schedulingv1.PriorityClass), e.Object.GetMetadata().GetName()
			delete(defaults, name)
			if e.Type != "DELETED" && class.GlobalDefault {
				defaults[name] = true
				handovers++
			}
			if len(defaults) > 1 {
				t.Fatalf("two at once at %s: %v", class.Metadata.ResourceVersion, defaults)
			}
			if name == last {
				if handovers < 5 {
					t.Errorf("only %d times was a class made the default", handovers)
				}
				return
			}
		}
	}
}

// createdLast creates a class that ends the history.
func createdLast(t *testing.T, by client) string {
	t.Helper()
	return must(createClass(t, by, newClass("last", 0)))(t).Metadata.Name
}

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }
