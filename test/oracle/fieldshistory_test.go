package oracle

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"

	"monoplane.dev/apiserver/patch"
)

// Of many managers the oldest become one, with the time of the last of them. Patches of any kind are updates, and what
// client-side apply has left is taken over by server-side apply, as in Kubernetes.
//
// spec: OBJ-9, OBJ-17
func TestOwnersOfLongHistories(t *testing.T) {
	managers := []string{"kubectl", clientSide}
	for i := range 12 {
		managers = append(managers, fmt.Sprint("m", i))
	}
	for _, k := range append(ownedKinds, kindsOfVersions()...) {
		t.Run(k.name, func(t *testing.T) {
			r := random(t)
			synctest.Test(t, func(t *testing.T) {
				var ancient, patches, migrations int
				histories := max(*count/400, 3)
				for range histories {
					p := newPair(t, k)
					for step := range 40 {
						time.Sleep(time.Duration(r.IntN(3)) * time.Second)
						manager := pick(r, managers)
						sub, other := p.part(r, step)
						next := p.altered(t, r, sub)
						if p.other != nil && !keyed(next) {
							continue
						}
						switch what := r.IntN(6); {
						case sub == "" && (manager == "kubectl" || manager == clientSide):
							p.migrate(t, r, next, manager, other)
							migrations++
						case what == 0:
							p.apply(t, p.config(t, r, next, sub, other), manager, sub, r.IntN(2) == 0, other)
						case what < 4 && p.live != nil:
							if after := p.patched(t, r, next, other); after != nil && (p.other == nil || keyed(after)) {
								p.update(t, after, manager, sub, other)
								patches++
							}
						default:
							p.update(t, next, manager, sub, other)
						}
						p.settle(t)
						if p.own == nil {
							continue
						}
						for _, e := range p.own.GetMetadata().GetManagedFields() {
							if e.GetManager() == "ancient-changes" {
								ancient++
							}
						}
					}
				}
				large := k.name == "Pod" || k.name == "Deployment" // with fields for many owners
				if ancient == 0 && large || patches == 0 || migrations == 0 {
					t.Errorf("%d steps with old managers, %d patches, %d of kubectl", ancient, patches, migrations)
				}
			})
		})
	}
}

const (
	// clientSide is the manager of kubectl's client-side apply.
	clientSide = "kubectl-client-side-apply"
	// lastApplied is where it keeps what it has applied.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// keyed says whether the elements of all lists have keys of their own: of others Kubernetes does not know who owns
// them in another version.
func keyed(o runtime.Object) bool {
	_, err := applyconfigurations.NewTypeConverter(scheme.Scheme).ObjectToTyped(o)
	return err == nil
}

// migrate has kubectl apply a part of next: by client-side apply, which writes it down in the object, or by
// server-side apply, which takes it over.
func (p *pair) migrate(t *testing.T, r *rand.Rand, next runtime.Object, manager string, other bool) {
	t.Helper()
	config := p.config(t, r, next, "", other)
	if list, ok := config["metadata"].(map[string]any)["annotations"].(map[string]any); ok {
		delete(list, lastApplied)
	}
	if manager != clientSide {
		p.apply(t, config, manager, "", r.IntN(2) == 0, other)
		return
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	m := next.(metav1.Object)
	list := maps.Clone(m.GetAnnotations())
	if list == nil {
		list = map[string]string{}
	}
	list[lastApplied] = string(text) + "\n"
	m.SetAnnotations(list)
	p.update(t, next, manager, "", other)
}

// patched makes a patch that turns the object into next, and returns what it becomes by it, which is the same by ours;
// nil when Kubernetes refuses the patch.
func (p *pair) patched(t *testing.T, r *rand.Rand, next runtime.Object, other bool) runtime.Object {
	t.Helper()
	gvk, kind := p.as(other)
	document := func(o runtime.Object) []byte {
		o = p.shown(t, o, other)
		o.(metav1.Object).SetManagedFields(nil)
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	empty := func() runtime.Object { return blank(t, p.owned, other) }
	live, wanted := document(p.live), document(next)
	var typ patch.Type
	var change, want []byte
	var err error
	switch r.IntN(3) {
	case 0:
		typ = patch.Merge
		if change, err = jsonpatch.CreateMergePatch(live, wanted); err != nil {
			t.Fatal(err)
		}
		want, err = jsonpatch.MergePatch(live, change)
	case 1:
		typ = patch.Strategic
		if change, err = strategicpatch.CreateTwoWayMergePatch(live, wanted, empty()); err != nil {
			return nil // such as of lists with a key twice
		}
		want, err = strategicpatch.StrategicMergePatch(live, change, empty())
	default:
		typ = patch.JSON
		var operations jsonpatch.Patch
		change = operationsBetween(t, live, wanted)
		if operations, err = jsonpatch.DecodePatch(change); err != nil {
			t.Fatal(err)
		}
		want, err = operations.Apply(live)
	}
	read, failed := patch.Parse(typ, change)
	if failed != nil {
		t.Fatalf("%s: %v", change, failed)
	}
	got, failed := read.Apply(live, patch.NewSchema(kind.New().ProtoReflect().Descriptor()))
	if (failed == nil) != (err == nil) {
		t.Fatalf("%s\n%s\nours says %v, Kubernetes %v", live, change, failed, err)
	}
	if err != nil {
		return nil
	}
	own, theirs := empty(), empty()
	if err := errors.Join(json.Unmarshal(got, own), json.Unmarshal(want, theirs)); err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(own, theirs) {
		t.Fatalf("%s\nis by %s\nhere          %s\nin Kubernetes %s", live, change, got, want)
	}
	theirs.GetObjectKind().SetGroupVersionKind(gvk)
	return p.stored(t, p.recast(t, theirs))
}

// operationsBetween is a JSON patch that turns one document into another, with a test of everything that it changes.
func operationsBetween(t *testing.T, from, to []byte) []byte {
	t.Helper()
	var a, b map[string]any
	if err := errors.Join(json.Unmarshal(from, &a), json.Unmarshal(to, &b)); err != nil {
		t.Fatal(err)
	}
	operations := []map[string]any{}
	var between func(path string, a, b map[string]any)
	between = func(path string, a, b map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(a)) {
			at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
			was, is := a[name], b[name]
			deeper, ok := was.(map[string]any)
			if into, too := is.(map[string]any); ok && too {
				between(at, deeper, into)
				continue
			}
			if reflect.DeepEqual(was, is) {
				continue
			}
			operations = append(operations, map[string]any{"op": "test", "path": at, "value": was})
			if _, stays := b[name]; stays {
				operations = append(operations, map[string]any{"op": "replace", "path": at, "value": is})
			} else {
				operations = append(operations, map[string]any{"op": "remove", "path": at})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(b)) {
			if _, had := a[name]; !had {
				at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
				operations = append(operations, map[string]any{"op": "add", "path": at, "value": b[name]})
			}
		}
	}
	between("", a, b)
	text, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
