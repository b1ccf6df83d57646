package codec_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/codec"
	"monoplane.dev/object"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	corev1 "monoplane.dev/api/core/v1"
	eventsv1 "monoplane.dev/api/events/v1"
	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	storagev1 "monoplane.dev/api/storage/v1"
)

func allKinds() []*object.Kind {
	return slices.Concat(corev1.Kinds(), coordinationv1.Kinds(), eventsv1.Kinds(), schedulingv1.Kinds(),
		storagev1.Kinds())
}

// spec: OBJ-1
func TestObjectsCarryTheirKind(t *testing.T) {
	lease := &coordinationv1.Lease{Metadata: &metav1.ObjectMeta{Name: "a"}}
	const want = `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"a"},"spec":{}}`
	if got := string(codec.AppendObject([]byte("x"), lease)); got != "x"+want {
		t.Errorf("got %s", got)
	}
	if got := string(codec.AppendBody([]byte("x"), new(coordinationv1.Lease), lease.AppendJSON(nil))); got != "x"+want {
		t.Errorf("around a known body: got %s", got)
	}
	const options = `{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1"}`
	if got := string(codec.AppendObject(nil, new(metav1.DeleteOptions))); got != options {
		t.Errorf("an empty body: got %s", got)
	}
	list := corev1.PodKind.NewList(&metav1.ListMeta{ResourceVersion: "7"}, nil)
	got := string(codec.AppendObject(nil, list))
	if got != `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}` {
		t.Errorf("got %s", got)
	}
}

// spec: OBJ-3
func TestAnotherKindIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                               `ok`,
		`{"kind":"Pod","apiVersion":"v1"}`: `ok`,
		`{"spec":{},"kind":"Pod"}`:         `ok`,
		`{"kind":"Node","apiVersion":"v1"}`: `the body is of kind "Node" in version "v1", expected kind "Pod" in ` +
			`version "v1"`,
		`{"kind":"Pod","apiVersion":"apps/v1"}`: `the body is of kind "Pod" in version "apps/v1", expected kind "Pod" in ` +
			`version "v1"`,
	} {
		_, err := codec.DecodeObject([]byte(text), new(corev1.Pod))
		var kindError *codec.KindError
		got := "ok"
		if errors.As(err, &kindError) {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s (%v), want %s", text, got, err, want)
		}
	}
}

// Clients send options in the version of whatever the request is about, or without any.
func TestOptionsBelongToEveryGroup(t *testing.T) {
	for _, text := range []string{
		`{"propagationPolicy":"Background"}`,
		`{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`,
		`{"kind":"DeleteOptions","apiVersion":"coordination.k8s.io/v1","propagationPolicy":"Background"}`,
	} {
		options := new(metav1.DeleteOptions)
		if strict, err := codec.DecodeObject([]byte(text), options); err != nil || len(strict) > 0 ||
			options.GetPropagationPolicy() != "Background" {
			t.Errorf("%s: %v %v %v", text, options, strict, err)
		}
	}
	if _, err := codec.DecodeObject([]byte(`{"kind":"Pod","apiVersion":"v1"}`), new(metav1.DeleteOptions)); err == nil {
		t.Error("a pod was taken for options")
	}
	policy := "Orphan"
	options := &metav1.DeleteOptions{PropagationPolicy: &policy}
	b := codec.AppendProtobufBody(nil, options, nil)
	b = []byte(strings.Replace(string(b), "meta.k8s.io/v1", "admission.io/v1"[:14], 1))
	if err := codec.DecodeProtobuf(b, new(metav1.DeleteOptions)); err != nil {
		t.Error(err)
	}
}

// Every kind keeps what package object asks of it.
func TestKindsAreConsistent(t *testing.T) {
	for _, kind := range allKinds() {
		o := kind.New()
		version, name := o.TypeMeta()
		if o.ObjectKind() != kind || name != kind.Kind || version != kind.APIVersion() {
			t.Errorf("%s: %s %s", kind.Kind, version, name)
		}
		meta := &metav1.ObjectMeta{Name: "a"}
		o.SetMetadata(meta)
		if o.GetMetadata() != meta || !proto.Equal(object.Clone(o), o) {
			t.Errorf("%s: metadata is lost", kind.Kind)
		}
		if kind.NewList == nil {
			if kind != corev1.BindingKind && kind != schedulingv1.PlacementReviewKind {
				t.Errorf("%s has no list", kind.Kind)
			}
			continue
		}
		list := kind.NewList(&metav1.ListMeta{ResourceVersion: "1"}, []object.Object{o})
		version, name = list.TypeMeta()
		if list.Len() != 1 || list.At(0) != o || list.GetMetadata().GetResourceVersion() != "1" ||
			name != kind.Kind+"List" || version != kind.APIVersion() {
			t.Errorf("%s: list %v", kind.Kind, list)
		}
	}
}
