package atomicdir_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monoplane.dev/nodeagent/volumes/atomicdir"
	"monoplane.dev/nodeagent/volumes/payload"
)

func files(pairs ...string) payload.Payload {
	p := payload.Payload{}
	for i := 0; i < len(pairs); i += 2 {
		p[pairs[i]] = payload.File{Data: []byte(pairs[i+1]), Mode: 0o640}
	}
	return p
}

func nothing() error { return nil }

func write(t *testing.T, dir string, p payload.Payload, want bool) {
	t.Helper()
	got, err := atomicdir.Write(dir, p, nothing)
	if err != nil || got != want {
		t.Fatalf("Write returned %v and %v, want %v", got, err, want)
	}
}

// shown returns what a container reads, by path, and the names at the top.
func shown(t *testing.T, dir string) (string, string) {
	t.Helper()
	var all, names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		names = append(names, e.Name())
		top, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			all = append(all, e.Name()+strings.TrimPrefix(path, top)+"="+string(data))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return strings.Join(all, " "), strings.Join(names, " ")
}

// hidden returns how many sets of files there are.
func hidden(t *testing.T, dir string) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "..2*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// spec: VOL-1
func TestWhatIsWrittenIsShown(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, files("a", "1", "d/b", "2", "d/e/c", "3"), true)
	if got, _ := shown(t, dir); got != "a=1 d/b=2 d/e/c=3" {
		t.Errorf("shown: %s", got)
	}
	before, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, files("a", "1", "d/b", "2", "d/e/c", "3"), false)
	if after, _ := os.Readlink(filepath.Join(dir, "..data")); after != before {
		t.Error("what has not changed was written again")
	}
	write(t, dir, files("a", "1", "d/b", "4", "f", ""), true)
	if got, names := shown(t, dir); got != "a=1 d/b=4 f=" || names != "a d f" {
		t.Errorf("shown after a change: %s, names %s", got, names)
	}
	write(t, dir, files("f", ""), true)
	if got, names := shown(t, dir); got != "f=" || names != "f" {
		t.Errorf("shown after a removal: %s, names %s", got, names)
	}
	write(t, dir, files(), true)
	if _, names := shown(t, dir); names != "" || hidden(t, dir) != 1 {
		t.Errorf("left after all is gone: %s, %d sets", names, hidden(t, dir))
	}
	info, err := os.Stat(dir + "/..data/")
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the set's directory: %v, %v", info, err)
	}
}

// A reader that opens one file through the link ..data sees a whole set, however often the set changes.
func TestReaderSeesOneSet(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, files("a", "0", "b", "0"), true)
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(ended)
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			text := strings.Repeat("x", n%7)
			if _, err := atomicdir.Write(dir, files("a", text, "b", text), nothing); err != nil {
				ended <- err
				return
			}
		}
	}()
	for range 2000 {
		set, err := os.Readlink(filepath.Join(dir, "..data"))
		if err != nil {
			t.Errorf("the link is missing: %v", err)
			break
		}
		a, errA := os.ReadFile(filepath.Join(dir, set, "a"))
		b, errB := os.ReadFile(filepath.Join(dir, set, "b"))
		if errA == nil && errB == nil && string(a) != string(b) {
			t.Errorf("a set has %q and %q", a, b)
			break
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What an interrupted Write left is cleared away, and a failed one leaves the old set.
func TestLeftoversAndFailures(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, files("a", "1"), true)
	if err := os.MkdirAll(filepath.Join(dir, "..2020_01_01_00_00_00.1", "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..2020_01_01_00_00_00.1", filepath.Join(dir, "..data_tmp")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, files("a", "2"), true)
	if got, _ := shown(t, dir); got != "a=2" || hidden(t, dir) != 1 {
		t.Errorf("shown: %s, %d sets", got, hidden(t, dir))
	}
	broken := errors.New("broken")
	if _, err := atomicdir.Write(dir, files("a", "3"), func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if _, err := atomicdir.Write(dir, files("a", "3", "a/b", "4"), nothing); err == nil {
		t.Error("a path that is a file and a directory was written")
	}
	if got, _ := shown(t, dir); got != "a=2" || hidden(t, dir) != 1 {
		t.Errorf("shown after failures: %s, %d sets", got, hidden(t, dir))
	}
}

// A file whose name is that of a directory that another volume is mounted on is not shown; the directory stays.
func TestDirectoriesStay(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, files("a", "1", "b", "2"), true)
	write(t, dir, files("b", "3"), true)
	if info, err := os.Lstat(filepath.Join(dir, "a")); err != nil || !info.IsDir() {
		t.Errorf("the directory: %v, %v", info, err)
	}
}

func TestBadPaths(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{
		"", "/etc/passwd", "..", "../x", "a/../../b", "..data", "..a/b", "a/..", strings.Repeat("x", 256),
		strings.Repeat("x/", 2050) + "x",
	} {
		if _, err := atomicdir.Write(dir, files(path, "x"), nothing); err == nil {
			t.Errorf("path %.20q was written", path)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("left: %v", entries)
	}
}
