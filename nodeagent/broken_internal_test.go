package nodeagent

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/static"
)

// Of a file that a power failure has broken nothing is believed, and what is whole is read.
func TestBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	a := &Agent{cfg: Config{PodsDir: filepath.Join(dir, "pods"), StateDir: filepath.Join(dir, "state"),
		Logger: slog.New(slog.DiscardHandler)}}
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "p", Uid: "u", Generation: 3},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c"}}},
		Status:   &corev1.PodStatus{StartTime: &metav1.Time{Seconds: 1}},
	}
	saved := static.Saved{Dir: filepath.Join(dir, "static")}
	broken := func(path string, read func() bool) {
		t.Helper()
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for size := range len(whole) + 1 {
			if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
				t.Fatal(err)
			}
			if got, want := read(), size == len(whole); got != want {
				t.Errorf("%d of %d bytes of %s are read: %t", size, len(whole), path, got)
			}
		}
	}
	if err := a.keepGrant(p); err != nil {
		t.Fatal(err)
	}
	broken(a.grantPath("u"), func() bool {
		kept := a.keptGrant(p)
		return kept != nil && kept.GetMetadata().GetGeneration() == 3 && len(kept.GetSpec().GetContainers()) == 1
	})
	if err := saved.Put(p); err != nil {
		t.Fatal(err)
	}
	broken(filepath.Join(saved.Dir, "u.json"), func() bool {
		all := saved.All()
		return len(all) == 1 && all[0].GetMetadata().GetUid() == "u"
	})
	a.noteStop()
	at := a.readStopNote().from
	broken(a.stopNotePath(), func() bool {
		text, err := os.ReadFile(a.stopNotePath())
		from := a.readStopNote().from
		if whole := err == nil && len(text) > 0 && text[len(text)-1] == '\n'; !whole { // but for the end of the line
			return !from.IsZero() && !from.Equal(at)
		}
		return from.Equal(at) && time.Since(from) < time.Hour
	})
}
