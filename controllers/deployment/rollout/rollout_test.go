package rollout_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/controllers/deployment/rollout"
)

func newDeployment(n, surge, missing int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec: &appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{}, Template: template(0),
			Strategy: &appsv1.DeploymentStrategy{Type: "RollingUpdate", RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge: &metav1.IntOrString{IntVal: surge}, MaxUnavailable: &metav1.IntOrString{IntVal: missing},
			}},
		},
	}
}

func template(i int) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{Metadata: &metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: fmt.Sprint("image:", i)}}}}
}

func newSet(i int, wants, has, available int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		Metadata: &metav1.ObjectMeta{Name: fmt.Sprint("rs-", i)},
		Spec:     &appsv1.ReplicaSetSpec{Replicas: &wants, Template: template(i)},
		Status:   &appsv1.ReplicaSetStatus{Replicas: has, AvailableReplicas: available},
	}
}

func never() bool { return false }

// say puts a plan into a line.
func say(p rollout.Plan) string {
	var all []string
	if p.Make {
		all = append(all, fmt.Sprint("make ", p.Size))
	}
	for _, s := range p.Scale {
		all = append(all, fmt.Sprint(s.Set.Metadata.Name, " to ", s.To))
	}
	return strings.Join(all, ", ")
}

// spec: WORK-1
func TestSteps(t *testing.T) {
	for name, x := range map[string]struct {
		d     *appsv1.Deployment
		fresh *appsv1.ReplicaSet
		old   []*appsv1.ReplicaSet
		want  string
	}{
		"nothing is there": {d: newDeployment(10, 3, 2), want: "make 10"},
		"a new template": {d: newDeployment(10, 3, 2),
			old: []*appsv1.ReplicaSet{newSet(1, 10, 10, 10)}, want: "make 3"},
		"without surge": {d: newDeployment(10, 0, 2),
			old: []*appsv1.ReplicaSet{newSet(1, 10, 10, 10)}, want: "make 0"},
		"old ones go": {newDeployment(10, 3, 2), newSet(0, 3, 3, 0),
			[]*appsv1.ReplicaSet{newSet(1, 10, 10, 10)}, "rs-1 to 8"},
		"deletions have not begun": {newDeployment(10, 3, 2), newSet(0, 3, 3, 0),
			[]*appsv1.ReplicaSet{newSet(1, 8, 10, 10)}, ""},
		"deletions have begun": {newDeployment(10, 3, 2), newSet(0, 3, 3, 0),
			[]*appsv1.ReplicaSet{newSet(1, 8, 8, 8)}, "rs-0 to 5"},
		"new ones are not ready": {newDeployment(10, 3, 2), newSet(0, 5, 5, 0),
			[]*appsv1.ReplicaSet{newSet(1, 8, 8, 8)}, ""},
		"broken old ones go first": {newDeployment(10, 3, 2), newSet(0, 3, 3, 3),
			[]*appsv1.ReplicaSet{newSet(1, 5, 5, 5), newSet(2, 5, 5, 1)}, "rs-1 to 4, rs-2 to 1"},
		"a status of before": {newDeployment(10, 3, 2), newSet(0, 5, 5, 5),
			[]*appsv1.ReplicaSet{newSet(1, 5, 8, 8)}, "rs-1 to 3"},
		"done": {newDeployment(10, 3, 2), newSet(0, 10, 10, 10),
			[]*appsv1.ReplicaSet{newSet(1, 0, 0, 0)}, ""},
	} {
		if got := say(rollout.Next(x.d, x.fresh, x.old, never)); got != x.want {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}

// However a rollout goes on, it ends, and by its steps alone there are never more pods than surge allows, nor fewer
// available ones than unavailability allows.
func TestRolloutsEndWithinTheirBounds(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 5))
		n, surge, missing := 1+rng.Int32N(12), rng.Int32N(5), rng.Int32N(5)
		missing = max(missing, 1-surge)
		d := newDeployment(n, surge, missing)
		fresh, old := newSet(0, 0, 0, 0), []*appsv1.ReplicaSet{newSet(1, n, n, n), newSet(2, 0, 0, 0)}
		all := append([]*appsv1.ReplicaSet{fresh}, old...)
		ended := false
		for step := 0; step < 2000 && !ended; step++ {
			// The controller of a set acts, or a pod becomes available, or neither has come to it yet.
			rs := all[rng.IntN(len(all))]
			switch has, want := rs.Status.Replicas, rs.Spec.GetReplicas(); {
			case has != want:
				rs.Status.Replicas = want
				rs.Status.AvailableReplicas = min(rs.Status.AvailableReplicas, want)
			case rs.Status.AvailableReplicas < want:
				rs.Status.AvailableReplicas++
			}
			for _, s := range rollout.Next(d, fresh, old, never).Scale {
				s.Set.Spec.Replicas = &s.To
			}
			var pods, available int32
			for _, rs := range all {
				pods += max(rs.Spec.GetReplicas(), rs.Status.Replicas)
				available += min(rs.Status.AvailableReplicas, rs.Spec.GetReplicas())
			}
			if pods > n+surge || available < n-missing {
				t.Fatalf("seed %d: %d pods, %d available, of %d+%d-%d", seed, pods, available, n, surge, missing)
			}
			ended = fresh.Status.AvailableReplicas == n && old[0].Status.Replicas == 0
		}
		if !ended {
			t.Fatalf("seed %d does not end: %v", seed, all)
		}
	}
}

// A template has one name, and another one after a collision.
func TestHash(t *testing.T) {
	one := int32(1)
	a, b := rollout.Hash(template(1), nil), rollout.Hash(template(2), nil)
	if a != rollout.Hash(template(1), nil) || a == b || a == rollout.Hash(template(1), &one) {
		t.Errorf("%s, %s, %s", a, b, rollout.Hash(template(1), &one))
	}
	if strings.Trim(a, "bcdfghjklmnpqrstvwxz2456789") != "" {
		t.Errorf("%q may not stand in a label", a)
	}
}
