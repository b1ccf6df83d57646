package framework_test

import (
	"testing"

	"monoplane.dev/client/cache"
	"monoplane.dev/scheduler/framework"
)

// Whoever waits for an object hears of it, whoever does not wait for it does not, and several changes are one reason
// to look.
func TestNews(t *testing.T) {
	key := cache.Key{Namespace: "ns", Name: "a"}
	pod, claim := framework.Subject{Kind: framework.PodSubject, Key: key},
		framework.Subject{Kind: framework.ClaimSubject, Key: key}
	n := framework.NewNews()
	both, stopBoth := n.About(pod, claim)
	only, stopOnly := n.About(pod)
	heard := func(c <-chan struct{}) int {
		select {
		case <-c:
			return 1 + len(c)
		default:
			return 0
		}
	}
	wants := func(what string, b, o int) {
		t.Helper()
		if gotBoth, gotOnly := heard(both), heard(only); gotBoth != b || gotOnly != o {
			t.Errorf("%s: one hears %d times, the other %d times, want %d and %d", what, gotBoth, gotOnly, b, o)
		}
	}
	n.Tell(claim)
	wants("claim", 1, 0)
	n.Tell(pod)
	n.Tell(pod)
	n.Tell(claim)
	wants("all", 1, 1)
	n.Tell(framework.Subject{Kind: framework.VolumeSubject, Key: key})
	n.Tell(framework.Subject{Kind: framework.PodSubject, Key: cache.Key{Namespace: "other", Name: "a"}})
	wants("others", 0, 0)
	stopBoth()
	n.Tell(pod)
	n.Tell(claim)
	wants("one has stopped", 0, 1)
	stopOnly()
	n.Tell(pod)
	wants("both have stopped", 0, 0)

	var silent *framework.News
	if wake, stop := silent.About(pod); wake != nil {
		t.Error("nobody tells, and it can be heard")
	} else {
		stop()
	}
}
