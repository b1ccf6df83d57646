package apiserver_test

import (
	"fmt"
	"testing"

	"monoplane.dev/apierrors"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// classPod is a pod that names a class; "" names none.
func classPod(name, class string) *corev1.Pod {
	p := newPod(name)
	p.Spec.PriorityClassName = class
	return p
}

func showPriority(p *corev1.Pod) string {
	s := p.GetSpec()
	if s.Priority == nil || s.PreemptionPolicy == nil {
		return "incomplete"
	}
	return fmt.Sprintf("%s %d %s", s.PriorityClassName, s.GetPriority(), s.GetPreemptionPolicy())
}

// spec: PRIO-2, PRIO-4
func TestPodsGetTheirPriority(t *testing.T) {
	c := start(t)
	admin := c.admin()
	quiet := newClass("quiet", -7)
	quiet.PreemptionPolicy = ptr("Never")
	must(createClass(t, admin, quiet))(t)
	must(createClass(t, admin, newClass("high", 1000)))(t)

	state := func(class string, value *int32, policy *string) *corev1.Pod {
		p := classPod("p", class)
		p.Spec.Priority, p.Spec.PreemptionPolicy = value, policy
		return p
	}
	const wrongValue = `pods "p" is forbidden: the integer value of priority (%d) must not be provided in pod spec; ` +
		`priority admission controller computed %d from the given PriorityClass name`
	const wrongPolicy = `pods "p" is forbidden: the string value of PreemptionPolicy (%s) must not be provided in pod ` +
		`spec; ` +
		`priority admission controller computed %s from the given PriorityClass name`
	type x = struct {
		name string
		pod  *corev1.Pod
		want string
	}
	cases := func(kind, none string, list ...x) {
		for _, x := range list {
			t.Run(kind+"/"+x.name, func(t *testing.T) {
				p, err := admin.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: x.pod, DryRun: []string{"All"}})
				got := ""
				switch {
				case err == nil:
					got = showPriority(p)
				case !apierrors.Is(err, apierrors.Forbidden):
					t.Errorf("refused as %v", err)
				default:
					got = apierrors.From(err).Error()
				}
				if got != x.want {
					t.Errorf("got  %s\nwant %s", got, x.want)
				}
			})
		}
		t.Run(kind+"/none", func(t *testing.T) {
			if got := showPriority(c.createPod(classPod("none-"+kind, ""))); got != none {
				t.Errorf("got %s, want %s", got, none)
			}
		})
	}
	cases("without-default", " 0 PreemptLowerPriority",
		x{"class", state("high", nil, nil), "high 1000 PreemptLowerPriority"},
		x{"negative and never", state("quiet", nil, nil), "quiet -7 Never"},
		x{"system class", state("system-node-critical", nil, nil), "system-node-critical 2000001000 PreemptLowerPriority"},
		x{"states the same", state("quiet", ptr(int32(-7)), ptr("Never")), "quiet -7 Never"},
		x{"states zero", state("", ptr(int32(0)), ptr("PreemptLowerPriority")), " 0 PreemptLowerPriority"},
		x{"unknown", state("nope", nil, nil), `pods "p" is forbidden: no PriorityClass with name nope was found`},
		x{"another value", state("high", ptr(int32(999)), nil), fmt.Sprintf(wrongValue, 999, 1000)},
		x{"zero for a class", state("high", ptr(int32(0)), nil), fmt.Sprintf(wrongValue, 0, 1000)},
		x{"a value without a class", state("", ptr(int32(5)), nil), fmt.Sprintf(wrongValue, 5, 0)},
		x{"another policy", state("high", nil, ptr("Never")), fmt.Sprintf(wrongPolicy, "Never", "PreemptLowerPriority")},
		x{"a policy without a class", state("", nil, ptr("Never")),
			fmt.Sprintf(wrongPolicy, "Never", "PreemptLowerPriority")},
	)
	must(createClass(t, admin, defaultClass("usual", 50)))(t)
	cases("with-default", "usual 50 PreemptLowerPriority",
		x{"class", state("high", nil, nil), "high 1000 PreemptLowerPriority"},
		x{"states the default", state("", ptr(int32(50)), nil), "usual 50 PreemptLowerPriority"},
		x{"zero", state("", ptr(int32(0)), nil), fmt.Sprintf(wrongValue, 0, 50)},
	)
}

// Classes come and go; the pods that are there keep what they got.
// spec: PRIO-2
func TestPodsKeepTheirPriority(t *testing.T) {
	c := start(t)
	admin := c.admin()
	before := c.createPod(classPod("before", ""))
	must(createClass(t, admin, defaultClass("usual", 50)))(t)
	usual := c.createPod(classPod("usual", ""))
	if err := deleteClass(t, admin, "usual"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*corev1.Pod{before, usual} {
		got := must(c.getPod(p.Metadata.Name))(t)
		if showPriority(got) != showPriority(p) || got.Metadata.ResourceVersion != p.Metadata.ResourceVersion {
			t.Errorf("%s is now %s", showPriority(p), showPriority(got))
		}
	}
	update := func(change func(*corev1.Pod)) error {
		next := clone(must(c.getPod("usual"))(t))
		change(next)
		return second(admin.Pods.Update(ctx(t), &corev1rpc.UpdatePodRequest{Object: next}))
	}
	// A client that states neither keeps both, although the class is gone.
	refused(t, update(func(p *corev1.Pod) {
		p.Spec.Priority, p.Spec.PreemptionPolicy = nil, nil
		p.Metadata.Labels = map[string]string{"a": "b"}
	}), "", "")
	if got := must(c.getPod("usual"))(t); showPriority(got) != "usual 50 PreemptLowerPriority" ||
		got.Metadata.Labels["a"] != "b" {
		t.Errorf("updated: %v", got)
	}
	const frozen = "pod updates may not change fields"
	refused(t, update(func(p *corev1.Pod) { p.Spec.Priority = ptr(int32(51)) }), apierrors.Invalid, frozen)
	refused(t, update(func(p *corev1.Pod) { p.Spec.PreemptionPolicy = ptr("Never") }), apierrors.Invalid, frozen)
	refused(t, update(func(p *corev1.Pod) { p.Spec.PriorityClassName = "" }), apierrors.Invalid, frozen)
}

// What one client has written of classes counts for its next pod, each time, while others write pods.
// spec: PRIO-2
func TestClassesCountAtOnce(t *testing.T) {
	c := start(t)
	admin := c.admin()
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			default:
				_, _ = admin.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: newPod(fmt.Sprint("noise-", i))})
			}
		}
	}()
	for i := range 60 {
		name := fmt.Sprint("class-", i)
		class := newClass(name, int32(i))
		class.GlobalDefault = i%2 == 0
		must(createClass(t, admin, class))(t)
		stated := ""
		if i%2 == 1 {
			stated = name
		}
		p := c.createPod(classPod("p-"+name, stated))
		if p.Spec.PriorityClassName != name || p.Spec.GetPriority() != int32(i) {
			t.Fatalf("%s got %s", name, showPriority(p))
		}
		if err := deleteClass(t, admin, name); err != nil {
			t.Fatal(err)
		}
		_, err := admin.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: classPod("q-"+name, name)})
		refused(t, err, apierrors.Forbidden, "no PriorityClass with name "+name+" was found")
	}
	close(quit)
	<-done
}

// The pods of one template share what their class gave them.
// spec: PRIO-2
func TestPrioritiesAreShared(t *testing.T) {
	c := start(t)
	must(createClass(t, c.admin(), newClass("high", 1000)))(t)
	a, b := c.createPod(classPod("a", "high")), c.createPod(classPod("b", "high"))
	stored := func(p *corev1.Pod) *corev1.PodSpec { return must(c.getPod(p.Metadata.Name))(t).Spec }
	if stored(a) != stored(b) {
		t.Error("two pods of one template have a spec each")
	}
}
