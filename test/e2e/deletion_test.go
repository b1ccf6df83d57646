package e2e_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// stubborn ignores TERM and shows that it lives by a growing file.
const stubborn = `trap "" TERM; echo $$ >BOX/pid; while :; do echo x >>BOX/ticks; sleep 0.05; done`

// slack is how much longer than its due a stop may take on a busy machine. With it the shortest grace of a test is
// still less than the 30 s of a pod that states none.
const slack = 25 * time.Second

// A process that does not heed TERM runs on for its whole grace, and not longer.
// spec: DEL-1, DEL-7, LIFE-5, LIFE-10, TERM-1, TERM-2, TERM-4
func TestGraceIsWhole(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	p, b := c.pods(t, ns), newBox(t)
	// A grandchild in a session of its own must go, too.
	pod := p.run(t, withGrace(podOf("stubborn", b.sh(
		`setsid sh -c 'trap "" TERM; echo $$ >BOX/orphan; sleep 3600 & wait; sleep 3600' & `+stubborn)), 3))
	pid, orphan := b.pid(t, "pid"), b.pid(t, "orphan")
	phases := p.phases(t, pod)

	began := time.Now()
	c.kubectl(t, ns).ok(t, "delete pod stubborn")
	took := time.Since(began)
	if took < 3*time.Second || took > 3*time.Second+slack {
		t.Errorf("deletion took %v, want 3 s", took)
	}
	if alive(pid) || alive(orphan) {
		t.Error("the object is gone, but its processes are not")
	}
	if got := <-phases; !slices.Equal(got, []corev1.PodPhase{corev1.PodRunning, corev1.PodFailed}) {
		t.Errorf("phases until the object went: %v, want Running, Failed", got)
	}
}

// spec: DEL-1, DEL-2, TERM-3
func TestGracePeriodsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	p, k := c.pods(t, ns), c.kubectl(t, ns)

	t.Run("one second", func(t *testing.T) {
		b := newBox(t)
		p.run(t, withGrace(podOf("short", b.sh(stubborn)), 600))
		pid := b.pid(t, "pid")
		began := time.Now()
		k.ok(t, "delete pod short --grace-period=1")
		// The node gives 2 s at least.
		if took := time.Since(began); took < time.Second || took > 2*time.Second+slack {
			t.Errorf("deletion took %v", took)
		}
		if alive(pid) {
			t.Error("the process still runs")
		}
	})
	t.Run("shortened, never lengthened", func(t *testing.T) {
		b := newBox(t)
		pod := p.run(t, withGrace(podOf("shortened", b.sh(stubborn)), 5))
		pid := b.pid(t, "pid") // TERM ends it before.
		p.delete(t, pod.Name, 600)
		first := p.until(t, pod.Name, "terminating", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
		if got := *first.DeletionGracePeriodSeconds; got != 600 {
			t.Errorf("the first request's grace is %d, want 600", got)
		}
		p.delete(t, pod.Name, 300)
		p.delete(t, pod.Name, 900)
		second, err := p.Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := *second.DeletionGracePeriodSeconds; got != 300 {
			t.Errorf("grace is %d, want 300", got)
		}
		if got := first.DeletionTimestamp.Sub(second.DeletionTimestamp.Time); got != 300*time.Second {
			t.Errorf("the deletion moved by %v, want 300 s", got)
		}
		p.delete(t, pod.Name, 1)
		p.untilGone(t, pod)
		gone(t, pid)
	})
}

// spec: DEL-4, DEL-9, CLI-1, and FENCE-4 as far as it is about forced deletions
func TestForce(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	p, k, b := c.pods(t, ns), c.kubectl(t, ns), newBox(t)
	old := p.run(t, withGrace(podOf("forced", b.sh(stubborn)), 600))
	pid := b.pid(t, "pid")
	k.tour(t, []step{
		{line: "delete pod forced --force --grace-period=0", want: []string{
			`^Warning: Immediate deletion does not wait for confirmation`, // kubectl's own
			`^Warning: .*The processes of pod forced may go on running`,   // the server's
			`^pod "forced" force deleted`,
		}},
	})
	next := p.create(t, sleeper("forced"))
	if next.UID == old.UID {
		t.Error("the successor has the same uid")
	}
	gone(t, pid)
	p.untilPhase(t, "forced", corev1.PodRunning)
	eventually(t, "audit line", func() (bool, string) {
		return strings.Contains(c.stderr.String(), "audit=forced-deletion user=monoplane:admin pod="+ns+"/forced"),
			c.stderr.tail(5)
	})
}

// spec: DEL-14
func TestSpecGraceOfZeroIsNotForce(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	p, b := c.pods(t, ns), newBox(t)
	pod := p.run(t, withGrace(podOf("zero", b.sh(stubborn)), 0))
	pid := b.pid(t, "pid")
	p.delete(t, "zero", -1)
	p.untilGone(t, pod)
	if alive(pid) {
		t.Error("the object went before the process")
	}
}

// spec: DEL-6
func TestFinalizerHoldsTheObject(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	p, k, b := c.pods(t, ns), c.kubectl(t, ns), newBox(t)
	pod := podOf("held", b.sh(`echo $$ >BOX/pid; exec sleep 3600`))
	pod.Finalizers = []string{"example.com/hold"}
	pod = p.run(t, pod)
	k.ok(t, "delete pod held --wait=false")
	gone(t, b.pid(t, "pid"))
	p.untilPhase(t, "held", corev1.PodFailed)
	// As in Kubernetes, the column shows how a terminal pod ended even while its object is held.
	k.tour(t, []step{{line: "get pods", want: []string{`^held +0/1 +Error`}}})
	_, err := p.Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.untilGone(t, pod)
}

// spec: DEL-12
func TestDeleteCollection(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	p := c.pods(t, ns)
	var doomed []*corev1.Pod
	for _, name := range []string{"a", "b"} {
		pod := sleeper(name)
		pod.Labels["set"] = "doomed"
		doomed = append(doomed, p.create(t, pod))
	}
	p.run(t, sleeper("stays"))
	err := p.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "set=doomed"})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range doomed {
		p.untilGone(t, pod)
	}
	list, err := p.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].DeletionTimestamp != nil {
		t.Errorf("left: %v, %v; want one pod that stays", list.Items, err)
	}
}
