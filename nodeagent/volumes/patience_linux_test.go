package volumes_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/volumes"
)

// stuck is a source that answers for no config map but "good", whatever becomes of the caller.
type stuck struct {
	*node

	release chan struct{}
}

func (s stuck) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	if name != "good" {
		<-s.release
	}
	return &corev1.ConfigMap{}, nil
}

// What hangs holds up its own pod only; that pod's other operations say what they wait for, and go on afterwards.
// spec: SAFE-6
func TestWhatHangsHoldsUpItsPodOnly(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := stuck{release: make(chan struct{})}
		m := volumes.New(volumes.Config{Dir: dir, Objects: s})
		defer m.Close()
		began := time.Now()
		err := m.SetUp(t.Context(), pod(configMap("v", "bad")))
		if !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "setting up its volumes takes too long") {
			t.Errorf("error %v", err)
		}
		if waited := time.Since(began); waited > 3*time.Minute {
			t.Errorf("it took %s", waited)
		}
		other := pod(configMap("v", "good"))
		other.Metadata.Uid = "uid-b"
		began = time.Now()
		if err := m.SetUp(t.Context(), other); err != nil {
			t.Errorf("another pod: %v", err)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("another pod waited %s", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = m.TearDown(ctx, "uid-a")
		const want = "taking its volumes away has to wait: setting up its volumes has not ended since 2000-01-01T00:00:00Z"
		if err == nil || err.Error() != want {
			t.Errorf("error %v", err)
		}
		close(s.release)
		for _, uid := range []string{"uid-a", "uid-b"} {
			if err := m.TearDown(t.Context(), uid); err != nil {
				t.Error(err)
			}
		}
	})
}

// A pod is to be refreshed before its token ends, after a failure too, and not any more when it is gone.
func TestTokensAreRenewedInTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := newNodeIn(t, dir)
		p := pod(&corev1.Volume{Name: "v", VolumeSource: &corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []*corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			},
		}}})
		due := func() int {
			n.mu.Lock()
			defer n.mu.Unlock()
			return len(n.due)
		}
		n.setUp(p)
		at := n.given(p)["/v"] + "/token"
		if got := n.read(at); got != "a::3600:1" {
			t.Errorf("token %s", got)
		}
		time.Sleep(47 * time.Minute)
		synctest.Wait()
		if due() != 0 {
			t.Error("the token of an hour is renewed before 48 minutes")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if due() != 1 {
			t.Errorf("due %d times after 49 minutes", due())
		}
		if err := n.Refresh(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if got := n.read(at); got != "a::3600:2" {
			t.Errorf("token %s after it was renewed", got)
		}
		n.fail = errors.New("no answer")
		if err := n.Refresh(t.Context(), p); err == nil {
			t.Error("the failure is not told")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if due() != 2 {
			t.Errorf("due %d times two minutes after a failure", due())
		}
		n.fail = nil
		if err := n.Refresh(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		n.tearDown(p)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if due() != 2 {
			t.Errorf("due %d times after the pod is gone", due())
		}
	})
}
