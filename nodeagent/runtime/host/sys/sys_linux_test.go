package sys

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestText(t *testing.T) {
	for _, s := range []string{"", " ", "a", " a\tb  c\n"} {
		if got, want := Fields(s), strings.Fields(s); !slices.Equal(got, want) {
			t.Errorf("Fields(%q) = %q", s, got)
		}
	}
	for _, s := range []string{"", ":", "a:b", "a::"} {
		if got, want := Split(s, ':'), strings.Split(s, ":"); !slices.Equal(got, want) {
			t.Errorf("Split(%q) = %q", s, got)
		}
	}
	for _, c := range [][2]string{{"", ""}, {"abc", "bc"}, {"abc", "x"}, {"ab", "abc"}} {
		if Index(c[0], c[1]) != strings.Index(c[0], c[1]) || HasPrefix(c[0], c[1]) != strings.HasPrefix(c[0], c[1]) {
			t.Errorf("%q", c)
		}
	}
	if LastByte("a/b/c", '/') != 3 || LastByte("a", '/') != -1 {
		t.Error("LastByte")
	}
}

// sleeper starts a process, with a name that is hard to parse, and ends it with the test.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(t.TempDir(), "x) R 1 (y")
	if err := os.Symlink(sleep, odd); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(odd, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
	})
	return cmd
}

func TestStatAndDescent(t *testing.T) {
	pid := sleeper(t).Process.Pid
	p, err := Stat(pid)
	if err != nil || p.PID != pid || p.PPID != os.Getpid() || p.Zombie || p.Start == 0 {
		t.Errorf("%+v %v", p, err)
	}
	for name, f := range map[string]func(int) ([]int, error){"children": Children, "scan": childrenByScan} {
		if kids, err := f(os.Getpid()); err != nil || !slices.Contains(kids, pid) {
			t.Errorf("%s: %v %v", name, kids, err)
		}
	}
	if d, err := Descendants([]int{os.Getpid()}); err != nil || !slices.ContainsFunc(d,
		func(x Proc) bool { return x.PID == p.PID }) {
		t.Errorf("descendants %v", d)
	}
	if _, err := Stat(1 << 30); !os.IsNotExist(err) {
		t.Errorf("no such process: %v", err)
	}
}

func TestSignalTakesNoOtherProcess(t *testing.T) {
	cmd := sleeper(t)
	p, err := Stat(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	older := p
	older.Start--
	for name, f := range map[string]func(Proc, syscall.Signal) error{"pidfd": Signal, "pid": signalByPID} {
		if err := f(older, syscall.SIGKILL); err != syscall.ESRCH {
			t.Errorf("%s: a process with the same pid was signalled: %v", name, err)
		}
	}
	if err := Signal(p, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	state, err := cmd.Process.Wait()
	if err != nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("%v %v", state, err)
	}
}

func markerOf(t *testing.T, pid int) Marker {
	t.Helper()
	m, err := MarkerOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMarkers(t *testing.T) {
	m := NewMarker(1<<64 - 1)
	if m.Pod() != m || m.Container(1).Pod() != m || m.Container(1) == m.Container(2) || m.Container(0) == m ||
		m>>63 != 0 {
		t.Errorf("%x %x", m, m.Container(1))
	}
	if markerOf(t, os.Getpid()) != 0 {
		t.Error("this process has a marker")
	}
	before := sleeper(t).Process.Pid
	if err := SetMarker(m.Container(7)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := SetMarker(1<<64 - 1); err != nil { // RLIM_INFINITY, as before.
			t.Error(err)
		}
	}()
	after := sleeper(t).Process.Pid
	if markerOf(t, after) != m.Container(7) || markerOf(t, before) != 0 {
		t.Errorf("%x, %x", markerOf(t, after), markerOf(t, before))
	}
	list, err := Marked(m, "NO=SUCH")
	var pids []int
	for _, p := range list {
		pids = append(pids, p.PID)
	}
	slices.Sort(pids)
	want := []int{os.Getpid(), after}
	slices.Sort(want)
	if err != nil || !reflect.DeepEqual(pids, want) {
		t.Errorf("%v %v, want %v", pids, err, want)
	}
}

func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b := open(), open()
	if held, err := Lock(a); held || err != nil {
		t.Errorf("%v %v", held, err)
	}
	if held, err := Lock(b); !held || err != nil {
		t.Errorf("%v %v", held, err)
	}
	a.Close()
	if held, err := Lock(b); held || err != nil {
		t.Errorf("%v %v", held, err)
	}
}
