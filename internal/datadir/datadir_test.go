package datadir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// unsafe fails the test unless err refuses path in one line that says what to do.
func unsafe(t *testing.T, err error, path, problem string) {
	t.Helper()
	var u *UnsafeError
	if !errors.As(err, &u) || u.Path != path || !strings.Contains(u.Problem, problem) || u.Remedy == "" ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("%v: want one line that refuses %s because %s, with a remedy", err, path, problem)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func made(t *testing.T) *Dir {
	t.Helper()
	d, err := Make(filepath.Join(t.TempDir(), "above", "data"))
	must(t, err)
	return d
}

func TestMakeIsForTheOwnerAlone(t *testing.T) {
	d := made(t)
	sub, err := d.Make("sub")
	must(t, err)
	must(t, sub.Write("file", []byte("text")))
	f, err := sub.OpenFile("lock", os.O_RDWR|os.O_CREATE)
	must(t, err)
	f.Close()
	for path, want := range map[string]fs.FileMode{
		filepath.Dir(d.Path()): 0o700, d.Path(): 0o700, sub.Path(): 0o700,
		filepath.Join(sub.Path(), "file"): 0o600, filepath.Join(sub.Path(), "lock"): 0o600,
	} {
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want mode %o", path, info, err, want)
		}
	}
	if _, err := Open(filepath.Join(d.Path(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that does not exist: %v", err)
	}
	if _, err := d.ReadFile("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
}

func TestDirectoriesThatOthersCanChange(t *testing.T) {
	for _, c := range []struct {
		name    string
		arrange func(t *testing.T, dir string) (path string)
		problem string
	}{
		{"others may write", func(t *testing.T, dir string) string {
			must(t, os.Chmod(dir, 0o777))
			return dir
		}, "0777"},
		{"others may write, sticky", func(t *testing.T, dir string) string {
			must(t, os.Chmod(dir, 0o777|fs.ModeSticky))
			return dir
		}, "0777"},
		{"a directory above, in which others may write", func(t *testing.T, dir string) string {
			must(t, os.Chmod(filepath.Dir(dir), 0o777))
			return filepath.Dir(dir)
		}, "0777"},
		{"a file", func(t *testing.T, dir string) string {
			must(t, os.Remove(dir))
			must(t, os.WriteFile(dir, nil, 0o600))
			return dir
		}, "not a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := made(t).Path()
			path := c.arrange(t, dir)
			_, err := Make(dir)
			unsafe(t, err, path, c.problem)
			_, err = Open(dir)
			unsafe(t, err, path, c.problem)
		})
	}
}

// A directory like /tmp is a fine place for a directory of one's own, and a link of one's own a fine way to it.
func TestWaysThatOthersCannotChange(t *testing.T) {
	d := made(t)
	must(t, os.Chmod(filepath.Dir(d.Path()), 0o777|fs.ModeSticky))
	if _, err := Make(d.Path()); err != nil {
		t.Errorf("below a sticky directory: %v", err)
	}
	if _, err := os.Stat("/tmp"); err == nil {
		dir, err := os.MkdirTemp("/tmp", "monoplane-")
		must(t, err)
		defer os.Remove(dir)
		if _, err := Make(dir); err != nil {
			t.Errorf("below /tmp: %v", err)
		}
	}
	must(t, os.Chmod(d.Path(), 0o755))
	if _, err := Make(d.Path()); err != nil {
		t.Errorf("others may look: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(d.Path(), link))
	must(t, d.Write("file", []byte("text")))
	linked, err := Open(link)
	must(t, err)
	if text, err := linked.ReadFile("file"); err != nil || string(text) != "text" {
		t.Errorf("by a link above: %q, %v", text, err)
	}
	loop := filepath.Join(t.TempDir(), "loop")
	must(t, os.Symlink(loop, loop))
	if _, err := Open(loop); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a link to itself: %v", err)
	}
}

func TestFilesThatAreNotPlain(t *testing.T) {
	for _, c := range []struct {
		name    string
		arrange func(t *testing.T, path, victim string)
		problem string
	}{
		{"a symbolic link", func(t *testing.T, path, victim string) { must(t, os.Symlink(victim, path)) }, "symbolic link"},
		{"a link that leads nowhere", func(t *testing.T, path, _ string) { must(t, os.Symlink("none", path)) },
			"symbolic link"},
		{"a hard link", func(t *testing.T, path, victim string) { must(t, os.Link(victim, path)) }, "2 names"},
		{"a pipe", func(t *testing.T, path, _ string) { must(t, syscall.Mkfifo(path, 0o600)) }, "pipe"},
		{"a directory", func(t *testing.T, path, _ string) { must(t, os.Mkdir(path, 0o700)) }, "directory"},
		{"a file that others may write", func(t *testing.T, path, _ string) {
			must(t, os.WriteFile(path, nil, 0o600))
			must(t, os.Chmod(path, 0o666))
		}, "0666"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := made(t)
			victim := filepath.Join(filepath.Dir(d.Path()), "victim")
			must(t, os.WriteFile(victim, []byte("precious"), 0o600))
			path := filepath.Join(d.Path(), "lock")
			c.arrange(t, path, victim)
			for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE, os.O_RDWR | os.O_CREATE | os.O_TRUNC} {
				f, err := d.OpenFile("lock", flag)
				if err == nil {
					f.Close()
				}
				unsafe(t, err, path, c.problem)
			}
			if c.name == "a directory" {
				must(t, d.CheckTree(-1))
			} else {
				unsafe(t, d.CheckTree(-1), path, c.problem)
			}
			if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
				t.Errorf("the file that it leads to holds %q, %v", text, err)
			}
			if _, err := os.Lstat(filepath.Join(d.Path(), "none")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a file was made where the link leads: %v", err)
			}
		})
	}
}

func TestSecretsThatOthersCanRead(t *testing.T) {
	d := made(t)
	must(t, d.Write("key", []byte("secret")))
	if text, err := d.ReadSecret("key"); err != nil || string(text) != "secret" {
		t.Fatalf("%q, %v", text, err)
	}
	path := filepath.Join(d.Path(), "key")
	must(t, os.Chmod(path, 0o640))
	_, err := d.ReadSecret("key")
	unsafe(t, err, path, "0640")
	if _, err := d.ReadFile("key"); err != nil {
		t.Errorf("as a file that is no secret: %v", err)
	}
	must(t, os.Chmod(d.Path(), 0o711))
	unsafe(t, d.Private(), d.Path(), "0711")
}

func TestCheckTree(t *testing.T) {
	d := made(t)
	must(t, os.MkdirAll(filepath.Join(d.Path(), "a", "b"), 0o700))
	must(t, os.WriteFile(filepath.Join(d.Path(), "a", "b", "file"), nil, 0o600))
	must(t, d.CheckTree(-1))
	link := filepath.Join(d.Path(), "a", "b", "link")
	must(t, os.Symlink("file", link))
	unsafe(t, d.CheckTree(-1), link, "symbolic link")
	unsafe(t, d.CheckTree(3), link, "symbolic link")
	must(t, d.CheckTree(2))
	sub, err := d.Open("a")
	must(t, err)
	must(t, os.Chmod(filepath.Join(sub.Path(), "b"), 0o770|fs.ModeSetgid|0o002))
	unsafe(t, d.CheckTree(2), filepath.Join(sub.Path(), "b"), "can change it")
	must(t, os.Symlink("a", filepath.Join(d.Path(), "c")))
	_, err = d.Open("c")
	unsafe(t, err, filepath.Join(d.Path(), "c"), "symbolic link")
	_, err = d.Make("c")
	unsafe(t, err, filepath.Join(d.Path(), "c"), "symbolic link")
}

// A file is whole, or it is what it was.
func TestReplace(t *testing.T) {
	d := made(t)
	victim := filepath.Join(filepath.Dir(d.Path()), "victim")
	must(t, os.WriteFile(victim, []byte("precious"), 0o600))
	must(t, os.Symlink(victim, filepath.Join(d.Path(), "file")))
	must(t, d.Write("file", []byte("first")))
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("a link was followed: %q, %v", text, err)
	}
	broken := errors.New("no space left on device")
	for _, how := range []Durability{Flushed, Unflushed} {
		err := d.Replace("file", how, func(f *os.File) error {
			if _, err := f.WriteString("sec"); err != nil {
				return err
			}
			return broken
		})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), filepath.Join(d.Path(), "file")) {
			t.Errorf("%v: want an error that names the file", err)
		}
	}
	if text, err := d.ReadFile("file"); err != nil || string(text) != "first" {
		t.Errorf("after a failed write: %q, %v", text, err)
	}
	must(t, d.Sync())
	if left, err := os.ReadDir(d.Path()); err != nil || len(left) != 1 {
		t.Errorf("left over: %v, %v", left, err)
	}
	must(t, d.Write("large", make([]byte, mostBytes+1)))
	if _, err := d.ReadFile("large"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large file: %v", err)
	}
}

// What a writer leaves that is killed before its file takes its place goes, and nothing else.
func TestSweep(t *testing.T) {
	must(t, Sweep(filepath.Join(t.TempDir(), "none")))
	d := made(t)
	var left string
	must(t, d.Replace("file.json", Unflushed, func(f *os.File) error {
		left = f.Name() + "0"
		return os.Link(f.Name(), left)
	}))
	stay := []string{".1.d", ".hidden", ".lock", "file.1", "file.json"}
	for _, name := range stay[1:4] {
		must(t, os.WriteFile(filepath.Join(d.Path(), name), nil, 0o600))
	}
	must(t, os.Mkdir(filepath.Join(d.Path(), stay[0]), 0o700))
	must(t, os.Mkdir(filepath.Join(d.Path(), ".dir.1"), 0o700))
	must(t, Sweep(d.Path()))
	if _, err := os.Lstat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", left, err)
	}
	for _, name := range append(stay, ".dir.1") {
		if have, err := d.Exists(name); err != nil || !have {
			t.Errorf("%s is gone: %v", name, err)
		}
	}
}

// What belongs to somebody else is refused, by root too.
func TestOtherUsers(t *testing.T) {
	const other = 54321
	d := made(t)
	must(t, d.Write("file", nil))
	file, dir, above := filepath.Join(d.Path(), "file"), d.Path(), filepath.Dir(d.Path())
	if os.Geteuid() != 0 {
		// Nothing can be given away. What is root's is somebody else's too.
		_, err := Open("/etc")
		unsafe(t, err, "/etc", "belongs to user root (0)")
		_, err = (&Dir{"/etc"}).OpenFile("passwd", os.O_RDONLY)
		unsafe(t, err, "/etc/passwd", "belongs to user root (0)")
		return
	}
	if err := os.Lchown(file, other, other); errors.Is(err, syscall.EINVAL) {
		t.Skip("this user namespace has no other users")
	} else {
		must(t, err)
	}
	_, err := d.ReadFile("file")
	unsafe(t, err, file, "belongs to user 54321")
	_, err = d.OpenFile("file", os.O_RDWR|os.O_CREATE)
	unsafe(t, err, file, "belongs to user 54321")
	unsafe(t, d.CheckTree(-1), file, "belongs to user 54321")

	must(t, os.Lchown(dir, other, other))
	_, err = Make(dir)
	unsafe(t, err, dir, "belongs to user 54321, not to user root (0)")
	_, err = (&Dir{above}).Open("data")
	unsafe(t, err, dir, "belongs to user 54321")

	must(t, os.Lchown(dir, 0, 0))
	must(t, os.Lchown(above, other, other))
	_, err = Make(dir)
	unsafe(t, err, above, "belongs to user 54321, who could replace "+dir)

	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(made(t).Path(), link))
	must(t, os.Lchown(link, other, other))
	_, err = Make(link)
	unsafe(t, err, link, "symbolic link of user 54321")

	group := made(t).Path()
	must(t, os.Lchown(group, -1, other))
	must(t, os.Chmod(group, 0o770))
	_, err = Make(group)
	unsafe(t, err, group, "0770")
}

// Where every user has a group, what the group may write is still the user's own.
func TestOwnGroup(t *testing.T) {
	if !ownGroup(os.Getegid()) {
		t.Skip("this user has no group of its own")
	}
	dir := made(t).Path()
	must(t, os.Chmod(filepath.Dir(dir), 0o775))
	must(t, os.Chmod(dir, 0o775))
	if _, err := Make(dir); err != nil {
		t.Error(err)
	}
}
