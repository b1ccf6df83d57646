package apiserver_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"monoplane.dev/apierrors"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1 "monoplane.dev/api/node/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
)

func newRuntimeClass(name, handler string) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{Metadata: &metav1.ObjectMeta{Name: name}, Handler: handler}
}

func TestRuntimeClasses(t *testing.T) {
	classes := nodev1rpc.NewRuntimeClassesClient(start(t).admin().conn)
	class := newRuntimeClass("vm", "kata")
	class.Overhead = &nodev1.Overhead{PodFixed: map[string]*metav1.Quantity{"cpu": {String_: "0.2500"}}}
	class.Scheduling = &nodev1.Scheduling{Tolerations: []*corev1.Toleration{{Key: "vm", Operator: "Exists"}}}
	made := must(classes.Create(ctx(t), &nodev1rpc.CreateRuntimeClassRequest{Object: class}))(t)
	if made.Handler != "kata" || made.Overhead.PodFixed["cpu"].String_ != "250m" {
		t.Errorf("created: %v", made)
	}
	for name, bad := range map[string]*nodev1.RuntimeClass{
		"no handler": newRuntimeClass("bad", ""),
		"no label":   newRuntimeClass("bad", "Kata_1"),
		"namespaced": {Metadata: &metav1.ObjectMeta{Name: "bad", Namespace: "default"}, Handler: "h"},
		"odd overhead": {Metadata: &metav1.ObjectMeta{Name: "bad"}, Handler: "h",
			Overhead: &nodev1.Overhead{PodFixed: map[string]*metav1.Quantity{"x": {String_: "1"}}}},
		"two of a taint": {Metadata: &metav1.ObjectMeta{Name: "bad"}, Handler: "h",
			Scheduling: &nodev1.Scheduling{Tolerations: []*corev1.Toleration{{Key: "a", Operator: "Exists"},
				{Key: "a", Operator: "Exists"}}}},
	} {
		if o, err := classes.Create(ctx(t), &nodev1rpc.CreateRuntimeClassRequest{Object: bad}); !apierrors.Is(err,
			apierrors.Invalid) {
			t.Errorf("%s: %v, %v", name, o, err)
		}
	}
	next := clone(made)
	next.Overhead.PodFixed["cpu"].String_, next.Scheduling = "2", nil
	made = must(classes.Update(ctx(t), &nodev1rpc.UpdateRuntimeClassRequest{Object: next}))(t)
	if made.Overhead.PodFixed["cpu"].String_ != "2" || made.Scheduling != nil {
		t.Errorf("updated: %v", made)
	}
	next = clone(made)
	next.Handler = "other"
	if _, err := classes.Update(ctx(t), &nodev1rpc.UpdateRuntimeClassRequest{Object: next}); !apierrors.Is(err,
		apierrors.Invalid) {
		t.Errorf("the handler may change: %v", err)
	}
	next = clone(made)
	next.Metadata.ResourceVersion = ""
	if _, err := classes.Update(ctx(t), &nodev1rpc.UpdateRuntimeClassRequest{Object: next}); !apierrors.Is(err,
		apierrors.Invalid) {
		t.Errorf("updated unseen: %v", err)
	}
}

// spec: LIFE-8
func TestPodsGetWhatTheirRuntimeClassSays(t *testing.T) {
	c := start(t)
	class := newRuntimeClass("vm", "kata")
	class.Overhead = &nodev1.Overhead{PodFixed: map[string]*metav1.Quantity{"cpu": {String_: "250m"},
		"memory": {String_: "64Mi"}}}
	class.Scheduling = &nodev1.Scheduling{
		NodeSelector: map[string]string{"vm": "yes"},
		Tolerations: []*corev1.Toleration{{Key: "vm", Operator: "Exists"},
			{Key: "node.kubernetes.io/not-ready", Operator: "Exists"}},
	}
	classes := c.admin().RuntimeClasses
	for _, o := range []*nodev1.RuntimeClass{class, newRuntimeClass("plain", "runc")} {
		must(classes.Create(ctx(t), &nodev1rpc.CreateRuntimeClassRequest{Object: o}))(t)
	}
	in := func(class string, change ...func(*corev1.PodSpec)) *corev1.Pod {
		p := newPod(fmt.Sprint("p-", class, "-", len(change)))
		p.Spec.RuntimeClassName = ptr(class)
		for _, f := range change {
			f(p.Spec)
		}
		return p
	}
	overhead := func(cpu, memory string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Overhead = map[string]*metav1.Quantity{"cpu": {String_: cpu}, "memory": {String_: memory}}
		}
	}
	selects := func(key, value string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{key: value} }
	}

	p := c.createPod(in("vm", selects("a", "b")))
	if o := p.Spec.Overhead; len(o) != 2 || o["cpu"].GetString_() != "250m" || o["memory"].GetString_() != "64Mi" {
		t.Errorf("overhead: %v", o)
	}
	if !maps.Equal(p.Spec.NodeSelector, map[string]string{"a": "b", "vm": "yes"}) {
		t.Errorf("selector: %v", p.Spec.NodeSelector)
	}
	var tolerated []string
	for _, x := range p.Spec.Tolerations {
		tolerated = append(tolerated, fmt.Sprint(x.Key, x.Effect, x.GetTolerationSeconds()))
	}
	// The class tolerates one of the two absences for ever, and so covers what every pod gets.
	got := strings.Join(tolerated, " ")
	if got != "node.kubernetes.io/unreachableNoExecute300 vm0 node.kubernetes.io/not-ready0" {
		t.Errorf("tolerations: %s", got)
	}
	if p := c.createPod(in("plain")); p.Spec.Overhead != nil || p.Spec.NodeSelector != nil ||
		len(p.Spec.Tolerations) != 2 {
		t.Errorf("a class that says nothing: %v", p.Spec)
	}
	same := in("vm", overhead("0.25", "65536Ki"), selects("vm", "yes"))
	if p := c.createPod(same); p.Spec.Overhead["memory"].String_ != "64Mi" {
		t.Errorf("the same overhead in other words: %v", p.Spec.Overhead)
	}

	for why, p := range map[string]*corev1.Pod{
		`there is no runtime class "none"`:       in("none"),
		"no runtime class gives it to the pod":   in("plain", overhead("1", "1")),
		`but the overhead of runtime class "vm"`: in("vm", overhead("250m", "65Mi")),
		`run on nodes with "yes"`:                in("vm", selects("vm", "no")),
		"no runtime class gives it to the pod, again": func() *corev1.Pod {
			p := newPod("p")
			overhead("1",
				"1")(p.Spec)
			return p
		}(),
	} {
		why, _, _ = strings.Cut(why, ", again")
		if _, err := c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p}); !apierrors.Is(err,
			apierrors.Forbidden) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}

	// A change counts for the next pod, and for no earlier one; a class that is gone is gone.
	live := must(classes.Get(ctx(t), &metav1.GetRequest{Name: "vm"}))(t)
	next := clone(live)
	next.Overhead.PodFixed["cpu"].String_ = "1"
	must(classes.Update(ctx(t), &nodev1rpc.UpdateRuntimeClassRequest{Object: next}))(t)
	later := in("vm")
	if p := c.createPod(later); p.Spec.Overhead["cpu"].String_ != "1" {
		t.Errorf("after the change: %v", p.Spec.Overhead)
	}
	if p := must(c.getPod(p.Metadata.Name))(t); p.Spec.Overhead["cpu"].String_ != "250m" {
		t.Errorf("a pod of before: %v", p.Spec.Overhead)
	}
	must(classes.Delete(ctx(t), &metav1.DeleteRequest{Name: "vm"}))(t)
	gone := in("vm")
	gone.Metadata.Name = "gone"
	if _, err := c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: gone}); !apierrors.Is(err,
		apierrors.Forbidden) {
		t.Errorf("of a class that is gone: %v", err)
	}
}
