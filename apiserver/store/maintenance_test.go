package store

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store/etcd"
	"monoplane.dev/apiserver/store/etcd/embedded"
	"monoplane.dev/object"
)

func TestFullDatabase(t *testing.T) {
	cfg := testConfig("")
	cfg.Connect = embedded.Connect(embedded.Config{Dir: t.TempDir(), UnsafeNoFsync: true, QuotaBytes: 4 << 20})
	s := open(t, cfg)
	key := podKey("default", "a")
	create(t, s, pod("default", "a"))
	// Far more history than fits, but little that is alive.
	for i := range 300 {
		_, err := s.Mutate(t.Context(), key, func(live object.Object) (*Txn, error) {
			p := object.Clone(live.(*corev1.Pod))
			p.Metadata.Annotations = map[string]string{"a": strings.Repeat(fmt.Sprint(i%10), 50_000)}
			return &Txn{Ops: []Op{{Key: key, Object: p}}}, nil
		})
		if err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
	// More alive than fits: refused, but what is there can be read and deleted, and then there is room again.
	var err error
	n := 0
	for ; err == nil && n < 300; n++ {
		p := pod("default", fmt.Sprint("p", n))
		p.Metadata.Annotations = map[string]string{"a": strings.Repeat("x", 50_000)}
		_, err = s.Commit(t.Context(), Txn{Ops: []Op{{Key: keyOf(p), Object: p}}})
	}
	wantReason(t, err, apierrors.ServiceUnavailable)
	if !strings.Contains(err.Error(), "full") {
		t.Error(err)
	}
	for i := range n - 1 {
		remove(t, s, podKey("default", fmt.Sprint("p", i)))
	}
	create(t, s, pod("default", "again"))
}

func TestSnapshotAndRestore(t *testing.T) {
	s := open(t, testConfig(t.TempDir()))
	for i := range 700 {
		create(t, s, benchPod(fmt.Sprintf("p%05d", i)))
	}
	create(t, s, &corev1.Event{Metadata: pod("default", "e").Metadata})
	rev, _ := s.Revision(t.Context())
	var snapshot bytes.Buffer
	if err := s.Snapshot(t.Context(), &snapshot); err != nil {
		t.Fatal(err)
	}
	before := names(list(t, s, ListOptions{}))
	create(t, s, pod("default", "after"))

	dir := filepath.Join(t.TempDir(), "restored")
	if err := embedded.Restore(t.Context(), dir, bytes.NewReader(snapshot.Bytes()), VerifyValue); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "restore.tmp")); !os.IsNotExist(err) {
		t.Error("remains of the restore", err)
	}
	r := open(t, testConfig(dir))
	restored := list(t, r, ListOptions{})
	wantNames(t, restored, before...)
	if got := restored.Objects[3].GetMetadata().GetResourceVersion(); got != revOf(list(t, s, ListOptions{}).Objects[4]) {
		t.Errorf("object at revision %s", got)
	}
	now, _ := r.Revision(t.Context())
	if now <= rev+1_000_000 {
		t.Errorf("revisions go on at %d, the snapshot was at %d", now, rev)
	}
	_, err := r.Watch(t.Context(), corev1.PodKind, WatchOptions{ResourceVersion: itoa(rev)})
	wantReason(t, err, apierrors.Expired)
	if at := create(t, r, pod("default", "new")); at <= now {
		t.Errorf("written at %d after %d", at, now)
	}
	relabel(t, r, podKey("default", "p00003"), "x")
	r.Close()
	open(t, testConfig(dir))

	t.Run("interrupted", func(t *testing.T) {
		dir := t.TempDir()
		left := filepath.Join(dir, "restore.tmp", "new")
		if err := os.MkdirAll(left, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), testConfig(dir)); err == nil || !strings.Contains(err.Error(), "restore it again") {
			t.Errorf("a server begins with nothing: %v", err)
		}
		if err := embedded.Restore(t.Context(), dir, bytes.NewReader(snapshot.Bytes()), VerifyValue); err != nil {
			t.Fatal(err)
		}
		// It is interrupted once more, when all is in its place.
		if err := os.MkdirAll(left, 0o700); err != nil {
			t.Fatal(err)
		}
		wantNames(t, list(t, open(t, testConfig(dir)), ListOptions{}), before...)
		if _, err := os.Stat(filepath.Dir(left)); !os.IsNotExist(err) {
			t.Error("remains of the restore", err)
		}
	})
	t.Run("not empty", func(t *testing.T) {
		if err := embedded.Restore(t.Context(), dir, bytes.NewReader(snapshot.Bytes()), VerifyValue); err == nil {
			t.Error("restored over data")
		}
	})
	damaged := bytes.Clone(snapshot.Bytes())
	damaged[len(damaged)/2] ^= 1
	for name, b := range map[string][]byte{
		"damaged": damaged, "cut": snapshot.Bytes()[:snapshot.Len()-700], "short": []byte("x"), "empty": nil,
		"no hash": snapshot.Bytes()[:snapshot.Len()-32],
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			err := embedded.Restore(t.Context(), dir, bytes.NewReader(b), VerifyValue)
			if err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("restored: %v", err)
			}
			open(t, testConfig(dir)) // it is still an empty directory
		})
	}
}

// releases counts how often the pages of the database were given back.
type releases struct {
	etcd.Client
	n *int
}

func (r releases) ReleasePages(ctx context.Context) error {
	*r.n++
	return r.Client.ReleasePages(ctx)
}

func TestCompaction(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(dir)
		cfg.HistoryRevisions = 100
		released := 0
		cfg.wrap = func(c etcd.Client) etcd.Client { return releases{c, &released} }
		s := open(t, cfg)
		create(t, s, pod("default", "a"))
		for i := range 160 {
			relabel(t, s, podKey("default", "a"), fmt.Sprint(i))
		}
		first := list(t, s, ListOptions{})
		time.Sleep(time.Minute) // in the bubble
		if c := s.compacted.Load(); c < 50 || c > 70 {
			t.Errorf("compacted at %d with 160 revisions", c)
		}
		synctest.Wait()
		if released != 1 {
			t.Errorf("the pages were given back %d times after one compaction", released)
		}
		relabel(t, s, podKey("default", "a"), "b")
		exact := ListOptions{ResourceVersion: first.Meta.ResourceVersion, ResourceVersionMatch: "Exact"}
		wantNames(t, list(t, s, exact), "default/a")
		time.Sleep(6 * time.Minute)
		relabel(t, s, podKey("default", "a"), "c")
		_, err := s.List(t.Context(), corev1.PodKind, exact)
		wantReason(t, err, apierrors.Expired)
		if _, err := s.Get(t.Context(), podKey("default", "a"), ""); err != nil {
			t.Error(err)
		}
	})
}

func TestSlowWatcher(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.HistoryEvents, cfg.WatchBuffer = 1000, 100
	s := open(t, cfg)
	create(t, s, pod("default", "a"))
	slow := watch(t, s, WatchOptions{Namespace: "default"})
	collect(t, slow, 1)
	lost := watch(t, s, WatchOptions{})
	collect(t, lost, 1)
	fast := watch(t, s, WatchOptions{})
	collect(t, fast, 1)
	rv := ""
	for i := range 150 {
		o := relabel(t, s, podKey("default", "a"), fmt.Sprint(i))
		if i == 0 {
			rv = revOf(o)
		}
		if events := collect(t, fast, 1); revOf(events[0].Object) != revOf(o) {
			t.Fatal(describe(events))
		}
	}
	_, err := slow.Next(t.Context())
	wantReason(t, err, apierrors.TooManyRequests)
	if !strings.Contains(err.Error(), "too slow") {
		t.Error(err)
	}
	if _, again := slow.Next(t.Context()); again != err {
		t.Errorf("then %v", again)
	}
	// It may go on where it was.
	resumed := watch(t, s, WatchOptions{ResourceVersion: rv})
	collect(t, resumed, 149)
	for i := range 1500 {
		relabel(t, s, podKey("default", "a"), fmt.Sprint("x", i))
	}
	_, err = lost.Next(t.Context())
	wantReason(t, err, apierrors.Expired)
	_, err = s.Watch(t.Context(), corev1.PodKind, WatchOptions{ResourceVersion: rv})
	wantReason(t, err, apierrors.Expired)
	if s.byKind[corev1.PodKind].cache.Stats().CutOff != 2 {
		t.Error(s.byKind[corev1.PodKind].cache.Stats())
	}
}

// Who changes an object in place is found out by the next change of the object, by one of another object of its kind,
// and at the end at the latest; what changed is told, and once.
func TestFindsMutations(t *testing.T) {
	label := func(o object.Object) { o.GetMetadata().Labels["app"] = "mine" }
	for _, tc := range []struct {
		name string
		// spoil changes one object in place; then makes the next change.
		spoil func(o object.Object)
		then  func(t *testing.T, s *Store)
		want  string
	}{
		{"at its next change", label, func(t *testing.T, s *Store) {
			relabel(t, s, podKey("default", "bad"), "new")
		}, `metadata.labels[app]: web became mine`},
		{"at its deletion", func(o object.Object) {
			o.GetMetadata().Finalizers[0] = "a/b"
		}, func(t *testing.T, s *Store) {
			remove(t, s, podKey("default", "bad"))
		}, `metadata.finalizers[0]: x/y became a/b`},
		{"at the change of another", func(o object.Object) {
			o.(*corev1.Pod).Status = &corev1.PodStatus{Phase: "Running"}
		}, func(t *testing.T, s *Store) {
			create(t, s, pod("default", "another"))
		}, `status: nothing became phase:"Running"`},
		{"at the end", func(o object.Object) {
			o.(*corev1.Pod).Spec.Containers = append(o.(*corev1.Pod).Spec.Containers, &corev1.Container{Name: "b"})
		}, func(t *testing.T, s *Store) {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}, `spec.containers: 1 items became 2 items`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var found []string
				cfg := testConfig(t.TempDir())
				cfg.OnMutation = func(err error) { found = append(found, err.Error()) }
				s := open(t, cfg)
				create(t, s, pod("default", "good"))
				bad := pod("default", "bad")
				bad.Metadata.Labels, bad.Metadata.Finalizers = map[string]string{"app": "web"}, []string{"x/y"}
				bad.Spec.Containers = []*corev1.Container{{Name: "a"}}
				create(t, s, bad)
				o, err := s.Get(t.Context(), podKey("default", "bad"), "")
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				tc.spoil(o)
				revision := o.GetMetadata().GetResourceVersion()
				tc.then(t, s)
				synctest.Wait()
				want := "pods default/bad at revision " + revision + " was changed after it was stored: " + tc.want
				if len(found) != 1 || found[0] != want {
					t.Errorf("found %q, want %q", found, want)
				}
				if err := s.Close(); err != nil || len(found) != 1 {
					t.Errorf("closed with %v, found %q", err, found)
				}
			})
		})
	}
}

// However many objects there are, a few of them are looked at for every change, and all in the end.
func TestLooksAtAllInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found := 0
		cfg := testConfig(t.TempDir())
		cfg.OnMutation = func(error) { found++ }
		s := open(t, cfg)
		const pods = 100
		for i := range pods {
			create(t, s, pod("default", fmt.Sprintf("p%03d", i)))
		}
		synctest.Wait()
		for i := range pods {
			o, err := s.Get(t.Context(), podKey("default", fmt.Sprintf("p%03d", i)), "")
			if err != nil {
				t.Fatal(err)
			}
			o.GetMetadata().Generation = 7
		}
		for changes := range 100 {
			before := found
			create(t, s, pod("other", fmt.Sprintf("p%03d", changes)))
			synctest.Wait()
			if found-before > 20 {
				t.Fatalf("one change had %d objects looked at", found-before)
			}
		}
		if found != pods {
			t.Errorf("found %d of %d", found, pods)
		}
	})
}
