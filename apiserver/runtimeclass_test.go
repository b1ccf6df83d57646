package apiserver_test

import (
	"testing"

	"monoplane.dev/apierrors"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1 "monoplane.dev/api/node/v1"
)

func newRuntimeClass(name, handler string) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{Metadata: &metav1.ObjectMeta{Name: name}, Handler: handler}
}

func TestRuntimeClasses(t *testing.T) {
	classes := nodev1.NewRuntimeClassesClient(start(t).admin().conn)
	class := newRuntimeClass("vm", "kata")
	class.Overhead = &nodev1.Overhead{PodFixed: map[string]*metav1.Quantity{"cpu": {String_: "0.2500"}}}
	class.Scheduling = &nodev1.Scheduling{Tolerations: []*corev1.Toleration{{Key: "vm", Operator: "Exists"}}}
	made := must(classes.Create(ctx(t), &nodev1.CreateRuntimeClassRequest{Object: class}))(t)
	if made.Handler != "kata" || made.Overhead.PodFixed["cpu"].String_ != "250m" {
		t.Errorf("created: %v", made)
	}
	for name, bad := range map[string]*nodev1.RuntimeClass{
		"no handler":     newRuntimeClass("bad", ""),
		"no label":       newRuntimeClass("bad", "Kata_1"),
		"namespaced":     {Metadata: &metav1.ObjectMeta{Name: "bad", Namespace: "default"}, Handler: "h"},
		"odd overhead":   {Metadata: &metav1.ObjectMeta{Name: "bad"}, Handler: "h", Overhead: &nodev1.Overhead{PodFixed: map[string]*metav1.Quantity{"x": {String_: "1"}}}},
		"two of a taint": {Metadata: &metav1.ObjectMeta{Name: "bad"}, Handler: "h", Scheduling: &nodev1.Scheduling{Tolerations: []*corev1.Toleration{{Key: "a", Operator: "Exists"}, {Key: "a", Operator: "Exists"}}}},
	} {
		if o, err := classes.Create(ctx(t), &nodev1.CreateRuntimeClassRequest{Object: bad}); !apierrors.Is(err, apierrors.Invalid) {
			t.Errorf("%s: %v, %v", name, o, err)
		}
	}
	next := clone(made)
	next.Overhead.PodFixed["cpu"].String_, next.Scheduling = "2", nil
	made = must(classes.Update(ctx(t), &nodev1.UpdateRuntimeClassRequest{Object: next}))(t)
	if made.Overhead.PodFixed["cpu"].String_ != "2" || made.Scheduling != nil {
		t.Errorf("updated: %v", made)
	}
	next = clone(made)
	next.Handler = "other"
	if _, err := classes.Update(ctx(t), &nodev1.UpdateRuntimeClassRequest{Object: next}); !apierrors.Is(err, apierrors.Invalid) {
		t.Errorf("the handler may change: %v", err)
	}
	next = clone(made)
	next.Metadata.ResourceVersion = ""
	if _, err := classes.Update(ctx(t), &nodev1.UpdateRuntimeClassRequest{Object: next}); !apierrors.Is(err, apierrors.Invalid) {
		t.Errorf("updated unseen: %v", err)
	}
}
