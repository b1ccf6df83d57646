package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/taints"
)

// Kubernetes' comparisons with numbers, which are not in all versions, are off, as they are there by default.
//
// spec: SCHED-4
func TestPodsTolerateTheSameTaints(t *testing.T) {
	r := random(t)
	keys, values := []string{"a", "b"}, []string{"", "1", "2"}
	effects := []v1.TaintEffect{taints.NoSchedule, taints.NoExecute, taints.PreferNoSchedule}
	kept := 0
	for range *count {
		k, node := minimal(), &v1.Node{}
		for range r.IntN(3) {
			node.Spec.Taints = append(node.Spec.Taints, v1.Taint{
				Key: pick(r, keys), Value: pick(r, values), Effect: pick(r, effects),
			})
		}
		for range r.IntN(4) {
			k.Spec.Tolerations = append(k.Spec.Tolerations, v1.Toleration{
				Key: pick(r, append(keys, "")), Value: pick(r, values), Effect: pick(r, append(effects, "")),
				Operator: pick(r, []v1.TolerationOperator{"", "Equal", "Exists", "Lt", "Gt", "exists"}),
			})
		}
		n, err := ours(node, &corev1.Node{})
		if err != nil {
			t.Fatal(err)
		}
		list := n.GetSpec().GetTaints()
		hard := func(t *v1.Taint) bool { return t.Effect != v1.TaintEffectPreferNoSchedule }
		log, there, tolerations := klog.Background(), node.Spec.Taints, k.Spec.Tolerations
		want, found := helper.FindMatchingUntoleratedTaint(log, there, tolerations, hard, false)
		got := taints.Untolerated(list, ourPod(t, k).Spec.Tolerations)
		first := v1.Taint{Key: got.GetKey(), Value: got.GetValue(), Effect: v1.TaintEffect(got.GetEffect())}
		if (got != nil) != found || first != want {
			t.Fatalf("taints %v\ntolerations %v\nin the way: %v for Kubernetes, %v for Monoplane", there, tolerations, want,
				got)
		}
		for i := range there {
			want := helper.TolerationsTolerateTaint(log, tolerations, &there[i], false)
			if got := taints.Tolerated(ourPod(t, k).Spec.Tolerations, list[i]); got != want {
				t.Fatalf("taint %v\ntolerations %v: %v for Kubernetes, %v for Monoplane", there[i], tolerations, want, got)
			}
		}
		if found {
			kept++
		}
	}
	if kept < *count/20 || kept > *count*19/20 {
		t.Errorf("%d of %d were kept away", kept, *count)
	}
}

// matchedTolerations are those that fit some taints, and whether there is one for all of them.
type matchedTolerations struct {
	All  bool
	Used []v1.Toleration
}

// How long a pod may stay on a tainted node is the shortest time among the tolerations that Kubernetes uses.
//
// spec: NODE-3
func TestPodsStayAsLong(t *testing.T) {
	r := random(t)
	keys := []string{"a", "b", "c"}
	timed, forever := 0, 0
	for range *count {
		k, node := minimal(), &v1.Node{}
		for range 1 + r.IntN(3) {
			node.Spec.Taints = append(node.Spec.Taints, v1.Taint{
				Key: pick(r, keys), Effect: pick(r, []v1.TaintEffect{taints.NoSchedule, taints.NoExecute}),
			})
		}
		for range r.IntN(6) {
			l := v1.Toleration{
				Key: pick(r, append(keys, "")), Operator: v1.TolerationOpExists,
				Effect: pick(r, []v1.TaintEffect{taints.NoExecute, ""}),
			}
			if r.IntN(2) == 0 {
				seconds := int64(r.IntN(8) - 2)
				l.Effect, l.TolerationSeconds = taints.NoExecute, &seconds
			}
			k.Spec.Tolerations = append(k.Spec.Tolerations, l)
		}
		n, err := ours(node, &corev1.Node{})
		if err != nil {
			t.Fatal(err)
		}
		var evicting []v1.Taint
		for _, t := range node.Spec.Taints {
			if t.Effect == v1.TaintEffectNoExecute {
				evicting = append(evicting, t)
			}
		}
		theirs := ask[matchedTolerations](t, "matching-tolerations", evicting, k.Spec.Tolerations)
		want, ever := time.Duration(0), theirs.All
		for _, l := range theirs.Used {
			if l.TolerationSeconds == nil {
				continue
			}
			if d := time.Duration(max(*l.TolerationSeconds, 0)) * time.Second; ever || d < want {
				want, ever = d, false
			}
		}
		got, stays := taints.Stay(n.GetSpec().GetTaints(), ourPod(t, k).Spec.Tolerations)
		if got != want || stays != ever {
			t.Fatalf("taints %v\ntolerations %v\n%v, for ever %t for Kubernetes; %v, %t for Monoplane", evicting,
				k.Spec.Tolerations, want, ever, got, stays)
		}
		if ever {
			forever++
		} else if want > 0 {
			timed++
		}
	}
	if timed < *count/20 || forever < *count/20 {
		t.Errorf("of %d pods %d stayed for a while and %d for ever", *count, timed, forever)
	}
}

// readTaints are taints that were read from text, or what is wrong with it.
type readTaints struct {
	Taints []v1.Taint
	Wrong  string
}

// What kubelets take in --register-with-taints is taken, and what they refuse is refused. Only taints to be removed,
// which they ignore there, are refused here.
//
// spec: NODE-6
func TestTaintsAreReadAlike(t *testing.T) {
	r := random(t)
	taken := 0
	for range *count {
		var list []string
		for range 1 + r.IntN(2) {
			key := pick(r, []string{"a", "a", "x.io/b", "", "a b", "-a", "a/b/c"})
			value := pick(r, []string{"", "=", "=1", "=b c", "=1=2", "=x.y_z"})
			effect := pick(r, []string{":NoSchedule", ":NoExecute", ":PreferNoSchedule", ":", "", ":Never", ":NoSchedule:x"})
			list = append(list, key+value+effect)
		}
		theirs := ask[readTaints](t, "taints", list)
		got, err := taints.Parse(list)
		if (err == nil) != (theirs.Wrong == "") {
			t.Fatalf("%q: %q by Kubernetes, %v by Monoplane", list, theirs.Wrong, err)
		}
		if err != nil {
			continue
		}
		taken++
		for i, k := range theirs.Taints {
			if g := got[i]; g.GetKey() != k.Key || g.GetValue() != k.Value || g.GetEffect() != string(k.Effect) {
				t.Fatalf("%q: %v by Kubernetes, %v by Monoplane", list, theirs.Taints, got)
			}
		}
	}
	if taken < *count/20 {
		t.Errorf("only %d lists were taken", taken)
	}
}
