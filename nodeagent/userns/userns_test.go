package userns_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"monoplane.dev/nodeagent/userns"
)

// machine makes the files of a machine; a text of "-" stands for no file.
func machine(t *testing.T, uids, gids string, pods int) userns.Config {
	t.Helper()
	dir := t.TempDir()
	cfg := userns.Config{SubUID: filepath.Join(dir, "subuid"), SubGID: filepath.Join(dir, "subgid"), User: "kubelet",
		MaxPods: pods, Dir: filepath.Join(dir, "pods")}
	for path, text := range map[string]string{cfg.SubUID: uids, cfg.SubGID: gids} {
		if text == "-" {
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

// pod makes a pod's directory.
func pod(t *testing.T, cfg userns.Config, uid string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(cfg.Dir, uid), 0o700); err != nil {
		t.Fatal(err)
	}
	return uid
}

func open(t *testing.T, cfg userns.Config) *userns.Ranges {
	t.Helper()
	r, err := userns.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func of(t *testing.T, r *userns.Ranges, uid string) uint32 {
	t.Helper()
	first, err := r.Of(uid)
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// spec: USER-2
func TestFilesOfTheMachine(t *testing.T) {
	const good = "kubelet:65536:131072\n"
	for _, c := range []struct {
		name, uids, gids string
		first            uint32
		file             string
		line             int
		wrong            string
	}{
		{name: "no files", uids: "-", gids: "-", first: 65536},
		{name: "nobody has any", uids: "", gids: "# none\n\n", first: 65536},
		{name: "given", uids: good, gids: good, first: 65536},
		{name: "others have some", uids: "a:1000000:10\nkubelet:131072:131072", gids: "kubelet:131072:131072\nb:500000:1",
			first: 131072},
		{name: "what others have is left alone", uids: "a:100000:65536", gids: "b:300000:10", first: 327680},
		{name: "in the gap between others", uids: "a:65536:1\nb:262144:1", gids: "", first: 131072},
		{name: "two lines", uids: "x:1:1\n" + good + good, gids: good, file: "subuid", line: 3,
			wrong: "has ids in line 2 already"},
		{name: "below 65536", uids: "kubelet:0:131072", gids: "kubelet:0:131072", file: "subuid", line: 1,
			wrong: "must be at least 65536"},
		{name: "first", uids: good, gids: "kubelet:65537:131072", file: "subgid", line: 1,
			wrong: "must be a multiple of 65536"},
		{name: "number", uids: "kubelet:65536:131073", gids: good, file: "subuid", line: 1,
			wrong: "must be a multiple of 65536"},
		{name: "too few", uids: "\nkubelet:65536:65536", gids: good, file: "subuid", line: 2,
			wrong: "must be at least 131072"},
		{name: "too far", uids: "kubelet:4294901760:131072", gids: "kubelet:4294901760:131072", file: "subuid", line: 1,
			wrong: "there are none from 4294967295 on"},
		{name: "not the same", uids: good, gids: "kubelet:131072:131072", file: "subgid", line: 1,
			wrong: "must be the same as its user ids"},
		{name: "users only", uids: good, gids: "", file: "subuid", line: 1, wrong: "no group ids"},
		{name: "groups only", uids: "-", gids: good, file: "subgid", line: 1, wrong: "no user ids"},
		{name: "overlap", uids: good, gids: good + "other:196607:1", file: "subgid", line: 2,
			wrong: "the ids of other, 1 from 196607 on, overlap"},
		{name: "beside", uids: good, gids: good + "other:196608:1", first: 65536},
		{name: "nonsense", uids: "kubelet:1", gids: "", file: "subuid", line: 1, wrong: "is not NAME:FIRST:COUNT"},
		{name: "no number", uids: "x:-1:5", gids: "", file: "subuid", line: 1, wrong: "is not a number"},
		{name: "all taken", uids: "a:0:4294967295", gids: "", wrong: "no 131072 ids in a row are left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := machine(t, c.uids, c.gids, 2)
			r, err := userns.Open(cfg)
			if c.wrong != "" {
				where := ""
				if c.file != "" {
					where = fmt.Sprintf("%s, line %d: ", c.file, c.line)
				}
				if err == nil || !strings.Contains(err.Error(), c.wrong) || !strings.Contains(err.Error(), where) {
					t.Fatalf("%v, want %s%s", err, where, c.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := of(t, r, pod(t, cfg, "a")); got != c.first {
				t.Errorf("the first pod has ids from %d on, want %d", got, c.first)
			}
		})
	}
}

// No two pods share ids, not even over a restart; what a pod had is free when it is gone. spec: USER-1
func TestRangesAreThePods(t *testing.T) {
	cfg := machine(t, "-", "-", 3)
	r := open(t, cfg)
	if _, err := r.Of("nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a pod without a directory: %v", err)
	}
	a, b, c := of(t, r, pod(t, cfg, "a")), of(t, r, pod(t, cfg, "b")), of(t, r, pod(t, cfg, "c"))
	if a != 65536 || b != 131072 || c != 196608 || of(t, r, "b") != b {
		t.Errorf("ranges from %d, %d and %d on", a, b, c)
	}
	if _, err := r.Of(pod(t, cfg, "d")); err == nil || !strings.Contains(err.Error(), "all 3 ranges") {
		t.Errorf("a fourth pod: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(cfg.Dir, "b")); err != nil {
		t.Fatal(err)
	}
	r.Release("b")
	r.Release("unknown")
	r = open(t, cfg)
	if of(t, r, "a") != a || of(t, r, "c") != c || of(t, r, "d") != b {
		t.Error("after a restart ranges are others")
	}
	// The files of the machine may say something else later: what runs stays as it is.
	if err := errors.Join(os.WriteFile(cfg.SubUID, []byte("x:65536:1"), 0o600),
		os.RemoveAll(filepath.Join(cfg.Dir, "d"))); err != nil {
		t.Fatal(err)
	}
	r = open(t, cfg)
	if got := of(t, r, pod(t, cfg, "e")); of(t, r, "a") != a || got == c || got == a {
		t.Errorf("a new pod has ids from %d on", got)
	}
}

func TestDamagedNotes(t *testing.T) {
	for text, wrong := range map[string]string{"\n": "not the first id", "x\n": "not the first id",
		"65537\n": "multiple", "0\n": "multiple", "65536\n": "already"} {
		cfg := machine(t, "-", "-", 3)
		of(t, open(t, cfg), pod(t, cfg, "a"))
		path := filepath.Join(cfg.Dir, pod(t, cfg, "b"), "userns")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := userns.Open(cfg); err == nil || !strings.Contains(err.Error(), wrong) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What is not whole was never used, and keeps neither its pod nor others from having ids.
func TestBrokenNotes(t *testing.T) {
	cfg := machine(t, "-", "-", 3)
	of(t, open(t, cfg), pod(t, cfg, "a"))
	path, whole := filepath.Join(cfg.Dir, pod(t, cfg, "b"), "userns"), "131072\n"
	for size := range len(whole) {
		if err := os.WriteFile(path, []byte(whole[:size]), 0o600); err != nil {
			t.Fatal(err)
		}
		r := open(t, cfg)
		if a, b := of(t, r, "a"), of(t, r, "b"); a != 65536 || b != 131072 {
			t.Errorf("%q: the pods have the ids from %d and %d on", whole[:size], a, b)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	cfg := machine(t, "-", "-", 50)
	r := open(t, cfg)
	got := make([]uint32, 50)
	var wg sync.WaitGroup
	for i := range got {
		uid := pod(t, cfg, fmt.Sprint("pod", i))
		wg.Go(func() { got[i], _ = r.Of(uid) })
	}
	wg.Wait()
	seen := map[uint32]bool{0: true}
	for _, first := range got {
		if seen[first] {
			t.Errorf("two pods have ids from %d on", first)
		}
		seen[first] = true
	}
}
