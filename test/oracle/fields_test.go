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
}

var ownedKinds = []owned{
	{"Pod", v1.SchemeGroupVersion.WithKind("Pod"), ourscore.PodKind, func() runtime.Object { return rich() }},
	{"Deployment", appsv1.SchemeGroupVersion.WithKind("Deployment"), oursapps.DeploymentKind,
		func() runtime.Object {
			return &appsv1.Deployment{ObjectMeta: meta("d"), Spec: appsv1.DeploymentSpec{Replicas: ptr(int32(3)),
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
				Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
					Spec: rich().Spec}}}
		}},
	{"Service", v1.SchemeGroupVersion.WithKind("Service"), ourscore.ServiceKind, func() runtime.Object {
		return &v1.Service{ObjectMeta: meta("s"), Spec: v1.ServiceSpec{Selector: map[string]string{"app": "a"},
			Ports: []v1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: 443, Protocol: v1.ProtocolTCP},
				{Name: "c", Port: 53, Protocol: v1.ProtocolUDP}}}}
	}},
	{"ConfigMap", v1.SchemeGroupVersion.WithKind("ConfigMap"), ourscore.ConfigMapKind, func() runtime.Object {
		return &v1.ConfigMap{ObjectMeta: meta("c"), Data: map[string]string{"a": "1", "b": "2"},
			BinaryData: map[string][]byte{"c": {1}}}
	}},
}

// noDefaults leaves objects as they are: what is compared is who owns fields.
type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

// pair is one object as both have it.
type pair struct {
	owned
	theirs map[string]*managedfields.FieldManager // by subresource
	track  *fieldmanager.Kind
	live   runtime.Object // Kubernetes', with its managedFields
	own    object.Object  // ours
}

func newPair(t *testing.T, k owned) *pair {
	t.Helper()
	p := &pair{owned: k, theirs: map[string]*managedfields.FieldManager{}, track: fieldmanager.New(k.kind)}
	for sub, skip := range map[string][]string{"": {"status"}, "status": {"spec", "metadata"}} {
		set := fieldpath.NewSet()
		for _, name := range skip {
			set.Insert(fieldpath.MakePathOrDie(name))
		}
		version := fieldpath.APIVersion(k.gvk.GroupVersion().String())
		m, err := managedfields.NewDefaultFieldManager(applyconfigurations.NewTypeConverter(scheme.Scheme), scheme.Scheme,
			noDefaults{}, scheme.Scheme, k.gvk, k.gvk.GroupVersion(), sub,
			map[fieldpath.APIVersion]fieldpath.Filter{version: fieldpath.NewExcludeSetFilter(set)})
		if err != nil {
			t.Fatal(err)
		}
		p.theirs[sub] = m
	}
	return p
}

func (p *pair) empty(t *testing.T) runtime.Object {
	t.Helper()
	o, err := scheme.Scheme.New(p.gvk)
	if err != nil {
		t.Fatal(err)
	}
	o.GetObjectKind().SetGroupVersionKind(p.gvk)
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

func (p *pair) write(manager, sub string) fieldmanager.Write {
	w := fieldmanager.Write{Manager: manager, APIVersion: p.kind.APIVersion(), Subresource: sub,
		Time: &oursmeta.Time{Seconds: 1}, Skip: []string{"status"}}
	if sub != "" {
		w.Skip = []string{"spec", "metadata"}
	}
	return w
}

// update writes next.
func (p *pair) update(t *testing.T, next runtime.Object, manager, sub string) {
	t.Helper()
	live := p.live
	if live == nil {
		live = p.empty(t)
	}
	asked := next.DeepCopyObject()
	asked.(metav1.Object).SetManagedFields(live.(metav1.Object).GetManagedFields())
	out, err := p.theirs[sub].Update(live.DeepCopyObject(), asked, manager)
	if err != nil {
		t.Fatal(err)
	}
	own := p.convert(t, next)
	if p.own == nil {
		own.GetMetadata().ManagedFields = p.track.Update(nil, own, nil, p.write(manager, sub))
	} else {
		own.GetMetadata().ManagedFields = p.track.Update(p.own, own, p.own.GetMetadata().GetManagedFields(),
			p.write(manager, sub))
	}
	p.live, p.own = p.stored(t, out), own
}

// apply applies config, and says whether that was a conflict.
func (p *pair) apply(t *testing.T, config map[string]any, manager, sub string, force bool) {
	t.Helper()
	live := p.live
	if live == nil {
		live = p.empty(t)
	}
	patch := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(config)}
	out, want := p.theirs[sub].Apply(live.DeepCopyObject(), patch, manager, force)

	before := p.kind.New()
	if p.own != nil {
		before = object.Clone(p.own)
		before.GetMetadata().ManagedFields = nil
	}
	got, err := p.track.Apply(p.own, codec.AppendObject(nil, before.(codec.Typed)), config, p.write(manager, sub), force)
	if (err == nil) != (want == nil) {
		t.Fatalf("%s applies %v: ours says %v, Kubernetes %v", manager, config, err, want)
	}
	if err != nil {
		if theirs := causes(want); !slices.Equal(theirs, ownCauses(err)) || len(theirs) > 0 && !sameLines(err, want) {
			t.Fatalf("%s applies %v\nours says        %v\nKubernetes says %v", manager, config, err, want)
		}
		return
	}
	own := p.kind.New()
	if _, err := codec.DecodeObject(got.Object, own.(codec.Typed)); err != nil {
		t.Fatal(err)
	}
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

// compare compares the entries, but for their times and so for their order.
func (p *pair) compare(t *testing.T) {
	t.Helper()
	read := func(into map[string]*fieldpath.Set, manager, operation, version, sub string, raw []byte) {
		s := &fieldpath.Set{}
		if err := s.FromJSON(bytes.NewReader(raw)); err != nil {
			t.Fatal(err)
		}
		into[fmt.Sprintf("%s %s %s %q", manager, operation, version, sub)] = s
	}
	theirs, own := map[string]*fieldpath.Set{}, map[string]*fieldpath.Set{}
	for _, e := range p.live.(metav1.Object).GetManagedFields() {
		read(theirs, e.Manager, string(e.Operation), e.APIVersion, e.Subresource, e.FieldsV1.Raw)
	}
	for _, e := range p.own.GetMetadata().GetManagedFields() {
		read(own, e.GetManager(), e.GetOperation(), e.GetApiVersion(), e.GetSubresource(), e.GetFieldsV1().GetRaw())
	}
	if a, b := slices.Sorted(maps.Keys(own)), slices.Sorted(maps.Keys(theirs)); !slices.Equal(a, b) {
		t.Fatalf("entries %q, in Kubernetes %q", a, b)
	}
	for name, s := range own {
		if !s.Equals(theirs[name]) {
			t.Fatalf("%s has what it has not in Kubernetes:\n%v\nand lacks:\n%v", name, s.Difference(theirs[name]),
				theirs[name].Difference(s))
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
	if p.name != "ConfigMap" {
		part = part.FieldByName(half)
	}
	alter(r, part.Addr().Interface(), r.IntN(4), nil)
	if sub == "" && r.IntN(3) == 0 {
		m := next.(metav1.Object)
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
func (p *pair) config(t *testing.T, r *rand.Rand, o runtime.Object, sub string) map[string]any {
	t.Helper()
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
	out["apiVersion"], out["kind"] = p.kind.APIVersion(), p.kind.Kind
	meta, _ := out["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		out["metadata"] = meta
	}
	meta["name"], meta["namespace"] = "x", "default"
	return out
}

// identifying are the fields that tell the elements of lists apart: an element without them is none.
var identifying = []string{"name", "containerPort", "port", "protocol", "mountPath", "devicePath", "ip", "type", "topologyKey",
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
	for _, k := range ownedKinds {
		t.Run(k.name, func(t *testing.T) {
			r := random(t)
			for range max(*count/100, 3) {
				p := newPair(t, k)
				for step := range 12 {
					manager := pick(r, []string{"a", "b", "kubectl", "d"})
					sub := ""
					if step > 0 && k.name != "ConfigMap" && r.IntN(5) == 0 {
						sub = "status"
					}
					next := p.altered(t, r, sub)
					if r.IntN(2) == 0 {
						p.update(t, next, manager, sub)
					} else {
						p.apply(t, p.config(t, r, next, sub), manager, sub, r.IntN(2) == 0)
					}
					if p.live == nil {
						continue
					}
					p.own.GetMetadata().Uid = "u" // which the server gives
					p.live.(metav1.Object).SetUID("u")
					p.compare(t)
				}
			}
		})
	}
}
