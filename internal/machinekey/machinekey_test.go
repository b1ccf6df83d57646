package machinekey

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"monoplane.dev/internal/datadir"
)

func ensure(t *testing.T, path string) (Key, bool) {
	t.Helper()
	dir, err := datadir.Make(path)
	if err != nil {
		t.Fatal(err)
	}
	key, fresh, err := Ensure(dir)
	if err != nil {
		t.Fatal(err)
	}
	return key, fresh
}

// why says what Copied does.
func why(t *testing.T, path string) string {
	t.Helper()
	dir, err := datadir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := Copied(dir)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// However a directory is copied, the copy gets a key of its own, and keeps it; the original keeps its own.
//
// spec: SAFE-5, NODE-7
func TestCopies(t *testing.T) {
	for _, c := range []struct {
		tool string
		copy func(t *testing.T, from, to string)
	}{
		{"cp", func(t *testing.T, from, to string) { run(t, "cp", "-a", from, to) }},
		{"cp", func(t *testing.T, from, to string) { run(t, "cp", "-r", from, to) }},
		{"cp", func(t *testing.T, from, to string) {
			// Over a directory that was the original's neighbour, with a key of its own.
			ensure(t, to)
			run(t, "cp", "-a", from+"/.", to)
		}},
		{"tar", func(t *testing.T, from, to string) {
			file := filepath.Join(t.TempDir(), "backup.tar")
			run(t, "tar", "-C", from, "-cf", file, ".")
			if err := os.Mkdir(to, 0o700); err != nil {
				t.Fatal(err)
			}
			run(t, "tar", "-C", to, "-xpf", file)
		}},
		{"rsync", func(t *testing.T, from, to string) { run(t, "rsync", "-aHAX", from+"/", to) }},
	} {
		if _, err := exec.LookPath(c.tool); err != nil {
			t.Logf("%s is not installed; not tried", c.tool)
			continue
		}
		from, to := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "copy")
		first, fresh := ensure(t, from)
		if !fresh || first.Value == "" || first.Owner != first.Value || first.Copied != "" {
			t.Fatalf("a new directory: %+v, fresh %v", first, fresh)
		}
		c.copy(t, from, to)
		if why := why(t, to); !strings.Contains(why, "copied") {
			t.Errorf("%s: of the copy it is said that %q", c.tool, why)
		}
		copied, fresh := ensure(t, to)
		if why := why(t, to) + why(t, from); why != "" {
			t.Errorf("%s: of the two directories, each with its key: %q", c.tool, why)
		}
		if !fresh || copied.Value == first.Value || copied.Owner == first.Owner ||
			!strings.Contains(copied.Copied, "copied") {
			t.Errorf("%s: the copy has %+v, fresh %v; the original %+v", c.tool, copied, fresh, first)
		}
		if again, fresh := ensure(t, to); fresh || again != copied {
			t.Errorf("%s: the copy had %+v, then %+v, fresh %v", c.tool, copied, again, fresh)
		}
		if again, fresh := ensure(t, from); fresh || again != first {
			t.Errorf("%s: the original had %+v, then %+v, fresh %v", c.tool, first, again, fresh)
		}
	}
}

// A directory that is moved, and the way that is given to it, do not matter.
func TestMoves(t *testing.T) {
	above := t.TempDir()
	first, _ := ensure(t, filepath.Join(above, "data"))
	run(t, "mv", filepath.Join(above, "data"), filepath.Join(above, "moved"))
	if key, fresh := ensure(t, filepath.Join(above, "moved")); fresh || key != first {
		t.Errorf("after a move: %+v, then %+v, fresh %v", first, key, fresh)
	}
	run(t, "chmod", "-R", "go-w", filepath.Join(above, "moved"))
	run(t, "touch", filepath.Join(above, "moved", Name))
	if err := os.Symlink(filepath.Join(above, "moved"), filepath.Join(above, "link")); err != nil {
		t.Fatal(err)
	}
	if key, fresh := ensure(t, filepath.Join(above, "link")); fresh || key != first {
		t.Errorf("by a link: %+v, then %+v, fresh %v", first, key, fresh)
	}
}

// A copy of the whole file system keeps the files what they are. The machine tells it.
func TestOtherMachine(t *testing.T) {
	dir, err := datadir.Make(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, err := Ensure(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*place){
		func(p *place) { p.Machine = "another" },
		func(p *place) { p.Product = "another" },
	} {
		// The file's own identity is not known before it is made, so that the text is put in afterwards.
		elsewhere := first
		change(&elsewhere.Place)
		text, err := json.Marshal(elsewhere)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir.Path(), Name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		key, fresh, err := Ensure(dir)
		if err != nil || !fresh || key.Value == first.Value || !strings.Contains(key.Copied, "another machine") {
			t.Errorf("%+v, fresh %v, %v", key, fresh, err)
		}
		first = key
	}
}

// Whatever an older version, or a disk that was full, has left in the file, the machine gets a key.
func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	first, _ := ensure(t, path)
	whole, err := os.ReadFile(filepath.Join(path, Name))
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{"\n", "ABCDEFG", "ABCDEFGHIJKLMNOPQRSTUVWXYZ\n", "\x00\x00", "{}", "[]", `{"key":"x"}`,
		strings.Repeat("x", 2<<20)}
	for n := range len(whole) - 1 {
		texts = append(texts, string(whole[:n]))
	}
	for _, text := range texts {
		if err := os.WriteFile(filepath.Join(path, Name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		key, fresh := ensure(t, path)
		if !fresh || key.Value == first.Value || key.Copied == "" {
			t.Errorf("%.40q: %+v, fresh %v", text, key, fresh)
		}
		if again, fresh := ensure(t, path); fresh || again != key {
			t.Errorf("%.40q: %+v, then %+v, fresh %v", text, key, again, fresh)
		}
	}
}

// The confirmation is for the directory that it was given for, not for copies of it.
func TestConfirmationIsNotCopied(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "copy")
	dir, err := datadir.Make(from)
	if err != nil {
		t.Fatal(err)
	}
	key, _, err := Ensure(dir)
	if err != nil {
		t.Fatal(err)
	}
	key.OriginalDead = true
	if _, err := Save(dir, key); err != nil {
		t.Fatal(err)
	}
	run(t, "cp", "-a", from, to)
	if key, _ := ensure(t, from); !key.OriginalDead {
		t.Errorf("it was forgotten: %+v", key)
	}
	if key, _ := ensure(t, to); key.OriginalDead {
		t.Errorf("it was copied: %+v", key)
	}
}
