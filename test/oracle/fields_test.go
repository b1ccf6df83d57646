package oracle

import (
	"bytes"
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

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	ourerrors "monoplane.dev/apierrors"
	"monoplane.dev/apiserver/fieldmanager"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec"
	"monoplane.dev/object"

	oursapps "monoplane.dev/api/apps/v1"
	ourscore "monoplane.dev/api/core/v1"
	oursmeta "monoplane.dev/api/meta/v1"
)

// owned is a kind whose owners of fields are compared.
type owned struct {
	name string
	gvk  schema.GroupVersionKind
	kind *object.Kind
	base func() runtime.Object
	// other is another version as which the objects are served; nil for none.
	other *otherVersion
}

// internalScheme converts objects of kinds with several versions by way of Kubernetes' internal ones. It is part of
// Kubernetes, so that such kinds are compared only when the tests are built with it.
var internalScheme *runtime.Scheme

// scheme converts objects of the kind: by way of Kubernetes' internal ones where there are versions, else not at all.
func (k *owned) scheme() *runtime.Scheme {
	if k.other != nil {
		return internalScheme
	}
	return scheme.Scheme
}

// otherVersion is a version of a kind that is not the one that is stored.
type otherVersion struct {
	gvk  schema.GroupVersionKind
	view fieldmanager.Version
}

// as returns the version in which a step of a history is taken: that which is stored, or the other.
func (k *owned) as(other bool) (schema.GroupVersionKind, *object.Kind) {
	if other {
		return k.other.gvk, k.other.view.Kind
	}
	return k.gvk, k.kind
}

var ownedKinds = []owned{
	{"Pod", v1.SchemeGroupVersion.WithKind("Pod"), ourscore.PodKind, func() runtime.Object { return rich() }, nil},
	{"Deployment", appsv1.SchemeGroupVersion.WithKind("Deployment"), oursapps.DeploymentKind,
		func() runtime.Object {
			return &appsv1.Deployment{ObjectMeta: meta("d"), Spec: appsv1.DeploymentSpec{Replicas: ptr(int32(3)),
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
				Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
					Spec: rich().Spec}}}
		}, nil},
	{"Service", v1.SchemeGroupVersion.WithKind("Service"), ourscore.ServiceKind, func() runtime.Object {
		return &v1.Service{ObjectMeta: meta("s"), Spec: v1.ServiceSpec{Selector: map[string]string{"app": "a"},
			Ports: []v1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: 443, Protocol: v1.ProtocolTCP},
				{Name: "c", Port: 53, Protocol: v1.ProtocolUDP}}}}
	}, nil},
	{"ConfigMap", v1.SchemeGroupVersion.WithKind("ConfigMap"), ourscore.ConfigMapKind, func() runtime.Object {
		return &v1.ConfigMap{ObjectMeta: meta("c"), Data: map[string]string{"a": "1", "b": "2"},
			BinaryData: map[string][]byte{"c": {1}}}
	}, nil},
}

// noDefaults leaves objects as they are: what is compared is who owns fields.
type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

// pair is one object as both have it.
type pair struct {
	owned
	theirs map[string]*managedfields.FieldManager // by version and subresource
	track  *fieldmanager.Kind
	live   runtime.Object // Kubernetes', with its managedFields
	own    object.Object  // ours
}

func newPair(t *testing.T, k owned) *pair {
	t.Helper()
	p := &pair{owned: k, theirs: map[string]*managedfields.FieldManager{}}
	versions, others := []schema.GroupVersionKind{k.gvk}, []fieldmanager.Version(nil)
	if k.other != nil {
		versions, others = append(versions, k.other.gvk), append(others, k.other.view)
	}
	p.track = fieldmanager.New(k.kind, others...)
	for sub, skip := range map[string][]string{"": {"status"}, "status": {"spec", "metadata"}} {
		set := fieldpath.NewSet()
		for _, name := range skip {
			set.Insert(fieldpath.MakePathOrDie(name))
		}
		filters := map[fieldpath.APIVersion]fieldpath.Filter{}
		for _, gvk := range versions {
			filters[fieldpath.APIVersion(gvk.GroupVersion().String())] = fieldpath.NewExcludeSetFilter(set)
		}
		for _, gvk := range versions {
			hub := gvk.GroupVersion()
			if k.other != nil {
				hub.Version = runtime.APIVersionInternal
			}
			m, err := managedfields.NewDefaultFieldManager(applyconfigurations.NewTypeConverter(scheme.Scheme), k.scheme(),
				noDefaults{}, k.scheme(), gvk, hub, sub, filters)
			if err != nil {
				t.Fatal(err)
			}
			p.theirs[gvk.Group+sub+gvk.Version] = m
		}
	}
	return p
}

// manager is Kubernetes' for a step.
func (p *pair) manager(other bool, sub string) *managedfields.FieldManager {
	gvk, _ := p.as(other)
	return p.theirs[gvk.Group+sub+gvk.Version]
}

// shown returns a stored object of Kubernetes in a version.
func (p *pair) shown(t *testing.T, o runtime.Object, other bool) runtime.Object {
	t.Helper()
	if !other {
		return o.DeepCopyObject()
	}
	return recast(t, o, p.other.gvk)
}

// hub returns an object as Kubernetes' server has it when it looks at who owns what: the internal one, which has what
// the conversion from a version fills in, such as the metric of an autoscaler of autoscaling/v1 that names none.
func (p *pair) hub(t *testing.T, o runtime.Object) runtime.Object {
	t.Helper()
	if p.other == nil {
		return o.DeepCopyObject()
	}
	return hubbed(t, o)
}

// recast is an object of Kubernetes as it is stored.
func (p *pair) recast(t *testing.T, o runtime.Object) runtime.Object {
	t.Helper()
	if p.other == nil {
		return o
	}
	return recast(t, o, p.gvk)
}

// hubbed converts an object of Kubernetes, with its entries, to Kubernetes' internal one, which it may be.
func hubbed(t *testing.T, o runtime.Object) runtime.Object {
	t.Helper()
	kinds, _, err := internalScheme.ObjectKinds(o)
	if err != nil {
		t.Fatal(err)
	}
	out := o.DeepCopyObject()
	if kinds[0].Version == runtime.APIVersionInternal {
		return out
	}
	out, err = internalScheme.ConvertToVersion(out,
		schema.GroupVersion{Group: kinds[0].Group, Version: runtime.APIVersionInternal})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// recast converts an object of Kubernetes, with its entries. It may be Kubernetes' internal one.
func recast(t *testing.T, o runtime.Object, gvk schema.GroupVersionKind) runtime.Object {
	t.Helper()
	out, err := internalScheme.ConvertToVersion(hubbed(t, o), gvk.GroupVersion())
	if err != nil {
		t.Fatal(err)
	}
	out.GetObjectKind().SetGroupVersionKind(gvk)
	return out
}

func (p *pair) empty(t *testing.T) runtime.Object { return blank(t, p.owned, false) }

func blank(t *testing.T, k owned, other bool) runtime.Object {
	t.Helper()
	gvk, _ := k.as(other)
	o, err := scheme.Scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	return o
}

// convert returns an object of Kubernetes as ours, without entries.
func (p *pair) convert(t *testing.T, o runtime.Object) object.Object {
	t.Helper()
	plain := o.DeepCopyObject()
	plain.(metav1.Object).SetManagedFields(nil)
	out, err := ours(plain.(upstream), p.kind.New())
	if err != nil {
		t.Fatal(err)
	}
	// By way of JSON both have what JSON has.
	again := p.kind.New()
	if _, err := codec.DecodeObject(codec.AppendObject(nil, out.(codec.Typed)), again.(codec.Typed)); err != nil {
		t.Fatal(err)
	}
	return again
}

func (p *pair) write(manager, sub string, other bool) fieldmanager.Write {
	_, kind := p.as(other)
	w := fieldmanager.Write{Manager: manager, APIVersion: kind.APIVersion(), Subresource: sub,
		Time: &oursmeta.Time{Seconds: time.Now().Unix()}, Skip: []string{"status"}}
	if sub != "" {
		w.Skip = []string{"spec", "metadata"}
	}
	return w
}

// update writes next.
func (p *pair) update(t *testing.T, next runtime.Object, manager, sub string, other bool) {
	t.Helper()
	live := p.live
	if live == nil {
		live = p.empty(t)
	}
	asked := p.hub(t, p.shown(t, next, other))
	asked.(metav1.Object).SetManagedFields(live.(metav1.Object).GetManagedFields())
	out, err := p.manager(other, sub).Update(p.hub(t, live), asked, manager)
	if err != nil {
		t.Fatal(err)
	}
	out = p.recast(t, out)
	own := p.convert(t, out) // which is next, as far as the version can say it
	if p.own == nil {
		own.GetMetadata().ManagedFields = p.track.Update(nil, own, nil, p.write(manager, sub, other))
	} else {
		own.GetMetadata().ManagedFields = p.track.Update(p.own, own, p.own.GetMetadata().GetManagedFields(),
			p.write(manager, sub, other))
	}
	p.live, p.own = p.stored(t, out), own
}

// apply applies config, and says whether that was a conflict.
func (p *pair) apply(t *testing.T, config map[string]any, manager, sub string, force, other bool) {
	t.Helper()
	live := p.live
	if live == nil {
		live = p.empty(t)
	}
	patch := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(config)}
	var shown runtime.Object
	_, kind := p.as(other)
	if p.live != nil {
		shown = p.shown(t, live, other)
	} else {
		shown = blank(t, p.owned, other)
	}
	out, want := p.manager(other, sub).Apply(shown, patch, manager, force)

	before := kind.New()
	if p.own != nil {
		stored := object.Clone(p.own)
		stored.GetMetadata().ManagedFields = nil
		if before = stored; other {
			before = p.other.view.Out(stored)
		}
	}
	got, err := p.track.Apply(p.own, codec.AppendObject(nil, before.(codec.Typed)), config, p.write(manager, sub, other),
		force)
	if (err == nil) != (want == nil) {
		t.Fatalf("%s applies %v: ours says %v, Kubernetes %v", manager, config, err, want)
	}
	if err != nil {
		if theirs := causes(want); !slices.Equal(theirs, ownCauses(err)) || len(theirs) > 0 && !sameLines(err, want) {
			t.Fatalf("%s applies %v\nours says        %v\nKubernetes says %v", manager, config, err, want)
		}
		return
	}
	own := kind.New()
	if _, err := codec.DecodeObject(got.Object, own.(codec.Typed)); err != nil {
		t.Fatal(err)
	}
	if other {
		own = p.other.view.In(own)
	}
	out = p.recast(t, out)
	if theirs := p.convert(t, out); !validation.Equal(own, theirs) {
		t.Fatalf("%s applies %v\nours differs from Kubernetes' at %q", manager, config,
			validation.Differences(own.ProtoReflect(), theirs.ProtoReflect(), "", 9))
	}
	meta := own.GetMetadata()
	if meta == nil {
		meta = &oursmeta.ObjectMeta{}
		own.SetMetadata(meta)
	}
	meta.ManagedFields = got.Entries
	p.live, p.own = p.stored(t, out), own
}

// whole says that a kind has neither spec nor status.
func whole(name string) bool { return name == "ConfigMap" || name == "Event" }

// causes returns the conflicts that an error of Kubernetes has, sorted.
func causes(err error) (out []string) {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			out = append(out, fmt.Sprint(c.Type, c.Message, c.Field))
		}
	}
	slices.Sort(out)
	return out
}

func ownCauses(err error) (out []string) {
	for _, c := range ourerrors.From(err).Status().GetDetails().GetCauses() {
		out = append(out, fmt.Sprint(c.GetReason(), c.GetMessage(), c.GetField()))
	}
	slices.Sort(out)
	return out
}

// sameLines compares messages whose lines may be in any order.
func sameLines(a, b error) bool {
	lines := func(err error) []string { return slices.Sorted(strings.SplitSeq(err.Error(), "\n")) }
	return slices.Equal(lines(a), lines(b))
}

// compare compares the entries, in their order. Both are to have the same time: in a bubble.
func (p *pair) compare(t *testing.T) {
	t.Helper()
	type list struct {
		names []string
		sets  []*fieldpath.Set
	}
	read := func(into *list, manager, operation, version, sub string, at int64, raw []byte) {
		s := &fieldpath.Set{}
		if err := s.FromJSON(bytes.NewReader(raw)); err != nil {
			t.Fatal(err)
		}
		into.names = append(into.names, fmt.Sprintf("%s %s %s %q at %d", manager, operation, version, sub, at))
		into.sets = append(into.sets, s)
	}
	var theirs, own list
	for _, e := range p.live.(metav1.Object).GetManagedFields() {
		at := int64(0) // of who has applied only what was there
		if e.Time != nil {
			at = e.Time.Unix()
		}
		read(&theirs, e.Manager, string(e.Operation), e.APIVersion, e.Subresource, at, e.FieldsV1.Raw)
	}
	for _, e := range p.own.GetMetadata().GetManagedFields() {
		read(&own, e.GetManager(), e.GetOperation(), e.GetApiVersion(), e.GetSubresource(), e.GetTime().GetSeconds(),
			e.GetFieldsV1().GetRaw())
	}
	if !slices.Equal(own.names, theirs.names) {
		t.Fatalf("entries %q\nin Kubernetes %q", own.names, theirs.names)
	}
	for i, s := range own.sets {
		if !s.Equals(theirs.sets[i]) {
			t.Fatalf("%s has what it has not in Kubernetes:\n%v\nand lacks:\n%v", own.names[i],
				s.Difference(theirs.sets[i]), theirs.sets[i].Difference(s))
		}
	}
}

// altered returns the object with random changes, as the subresource may make them.
func (p *pair) altered(t *testing.T, r *rand.Rand, sub string) runtime.Object {
	t.Helper()
	next := p.base()
	if p.live != nil {
		next = p.live.DeepCopyObject()
	}
	half := "Spec"
	if sub != "" {
		half = "Status"
	}
	part := reflect.ValueOf(next).Elem()
	if !whole(p.name) {
		part = part.FieldByName(half)
	}
	m := next.(metav1.Object)
	was := next.DeepCopyObject()
	alter(r, part.Addr().Interface(), r.IntN(4), nil)
	if whole(p.name) {
		// Metadata like these cannot be stored: names, kinds and uids of owners are required.
		meta := func(o runtime.Object) reflect.Value { return reflect.ValueOf(o).Elem().FieldByName("ObjectMeta") }
		meta(next).Set(meta(was))
	}
	if sub == "" && r.IntN(3) == 0 {
		m.SetLabels(map[string]string{pick(r, words): pick(r, words), "app": pick(r, words)})
		m.SetFinalizers([]string{pick(r, words), "example.com/f"}[r.IntN(2):])
	}
	next.(metav1.Object).SetManagedFields(nil)
	return p.stored(t, next)
}

// stored returns the object as it is when it has been stored and read: without empty lists and times that are none.
func (p *pair) stored(t *testing.T, o runtime.Object) runtime.Object {
	t.Helper()
	wire, err := o.(upstream).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	read := p.empty(t)
	if err := read.(upstream).Unmarshal(wire); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(read)
	if err != nil {
		t.Fatal(err)
	}
	out := p.empty(t)
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// config returns a part of an object, as somebody would apply it.
func (p *pair) config(t *testing.T, r *rand.Rand, o runtime.Object, sub string, other bool) map[string]any {
	t.Helper()
	o = p.shown(t, o, other)
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	m, _ := all["metadata"].(map[string]any)
	delete(m, "managedFields")
	delete(m, "creationTimestamp")
	if sub == "" {
		delete(all, "status")
	} else {
		delete(all, "spec")
	}
	out := thin(r, all).(map[string]any)
	_, kind := p.as(other)
	out["apiVersion"], out["kind"] = kind.APIVersion(), kind.Kind
	meta, _ := out["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		out["metadata"] = meta
	}
	meta["name"], meta["namespace"] = "x", "default"
	return out
}

// identifying are the fields that tell the elements of lists apart: an element without them is none.
var identifying = []string{"name", "containerPort", "port", "protocol", "mountPath", "devicePath", "ip", "type",
	"topologyKey",
	"whenUnsatisfiable", "uid"}

// thin leaves out parts of a tree.
func thin(r *rand.Rand, tree any) any {
	switch x := tree.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, k := range slices.Sorted(maps.Keys(x)) {
			if x[k] != nil && (slices.Contains(identifying, k) || r.IntN(3) > 0) {
				out[k] = thin(r, x[k])
			}
		}
		return out
	case []any:
		out := []any{}
		for _, e := range x {
			if r.IntN(4) > 0 {
				out = append(out, thin(r, e))
			}
		}
		return out
	default:
		return tree
	}
}

// Whoever writes what in whatever order, the fields of an object belong to whom they do in Kubernetes, and what is
// applied comes out as there.
//
// spec: OBJ-9, OBJ-17
func TestOwners(t *testing.T) {
	for _, k := range append(ownedKinds, kindsOfVersions()...) {
		t.Run(k.name, func(t *testing.T) {
			r := random(t)
			synctest.Test(t, func(t *testing.T) {
				for range max(*count/100, 3) {
					p := newPair(t, k)
					for step := range 12 {
						manager := pick(r, []string{"a", "b", "kubectl", "d"})
						sub, other := p.part(r, step)
						next := p.altered(t, r, sub)
						if r.IntN(2) == 0 {
							p.update(t, next, manager, sub, other)
						} else {
							p.apply(t, p.config(t, r, next, sub, other), manager, sub, r.IntN(2) == 0, other)
						}
						p.settle(t)
					}
				}
			})
		})
	}
}

// part returns the subresource and the version of a step.
func (p *pair) part(r *rand.Rand, step int) (sub string, other bool) {
	other = p.other != nil && r.IntN(2) == 0
	if step > 0 && !whole(p.name) && r.IntN(5) == 0 {
		sub = "status"
	}
	return sub, other
}

// settle compares what a step has made.
func (p *pair) settle(t *testing.T) {
	t.Helper()
	if p.live == nil {
		return
	}
	p.own.GetMetadata().Uid = "u" // which the server gives
	p.live.(metav1.Object).SetUID("u")
	p.compare(t)
}
