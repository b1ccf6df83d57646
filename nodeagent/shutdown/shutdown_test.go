package shutdown_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/shutdown"
)

func pods(priorities ...int32) []*corev1.Pod {
	var out []*corev1.Pod
	for _, n := range priorities {
		out = append(out, &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: fmt.Sprint(n)},
			Spec: &corev1.PodSpec{Priority: &n}})
	}
	return out
}

func words(groups []shutdown.Group) string {
	var out []string
	for _, g := range groups {
		var names []string
		for _, p := range g.Pods {
			names = append(names, p.GetMetadata().GetName())
		}
		out = append(out, fmt.Sprintf("%s: %s", g.Period, strings.Join(names, " ")))
	}
	return strings.Join(out, ", ")
}

func TestGroups(t *testing.T) {
	split, err := shutdown.Split(30*time.Second, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	classes := shutdown.Plan{{Priority: 1000, Period: 3 * time.Second}, {Priority: 10, Period: time.Second}}
	for _, x := range []struct {
		plan shutdown.Plan
		pods []*corev1.Pod
		want string
	}{
		{split, pods(2_000_000_001, 5, -1), "20s: 5 -1, 10s: 2000000001"},
		{split, pods(7), "20s: 7"},
		{classes, pods(1000, 999, 10, 0), "1s: 999 10 0, 3s: 1000"},
		{nil, pods(1), ""},
	} {
		if got := words(x.plan.Groups(x.pods)); got != x.want {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
	if _, err := shutdown.Split(time.Second, 2*time.Second); err == nil {
		t.Error("critical pods have more than there is")
	}
	if p, err := shutdown.Split(0, 0); err != nil || p != nil {
		t.Errorf("no time: %v, %v", p, err)
	}
	if err := (shutdown.Plan{{Priority: 1}, {Priority: 1}, {Period: -1}}).Check(); err == nil ||
		!strings.Contains(err.Error(), "twice") || !strings.Contains(err.Error(), "priority 0") {
		t.Errorf("a bad plan: %v", err)
	}
}
