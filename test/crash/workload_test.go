package crash

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The environment of a workload.
const (
	envDir       = "CRASH_DIR"       // where it writes; also marks the processes of a run
	envName      = "CRASH_NAME"      // name of its pod
	envUID       = "CRASH_UID"       // uid of its pod
	envContainer = "CRASH_CONTAINER" // name of its container
	envGuard     = "CRASH_GUARD"     // makes the process the run's guard instead
)

// What the journal says of an instance of a container.
const (
	started    = "start"
	overlapped = "overlap" // it found another holder of its lock
	stopped    = "term"    // it was told to stop
	breathed   = "alive"   // it goes on after that
	crashed    = "exit"    // it ended because it wanted to
	rebelled   = "parent"  // it stops its own shim
)

// entry is one line of the journal.
type entry struct {
	What, Name, UID, Container string

	process
	At time.Duration // by the boot clock
}

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(envGuard) != "":
		os.Exit(guard(os.Getenv(envGuard)))
	case os.Getenv(envShare) != "":
		os.Exit(peer(os.Getenv(envShare), os.Getenv(envUID)))
	case os.Getenv(envName) != "":
		os.Exit(workload())
	}
	os.Exit(m.Run())
}

// bootClock is the time since the machine was started. It is the same in all processes and never set back.
func bootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // the clock has been there since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}

// instance is a running workload: one instance of one container.
type instance struct {
	entry
	dir     string
	journal *os.File
	locks   []*os.File // held as long as the process lives
}

// workload is what a container runs. As long as it lives it holds a lock on its pod's uid and container, and one on
// its pod's name, so that a second instance is noticed by the kernel. It writes down when it was told to stop and when
// it was last alive.
func workload() int {
	self, err := self()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	w := &instance{dir: os.Getenv(envDir), entry: entry{
		Name: os.Getenv(envName), UID: os.Getenv(envUID), Container: os.Getenv(envContainer), process: self,
	}}
	terms := make(chan os.Signal, 8)
	signal.Notify(terms, syscall.SIGTERM)
	w.journal, err = os.OpenFile(filepath.Join(w.dir, "journal"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	// A forced deletion lets a pod of the same name begin before this one has ended: that is what forcing means.
	exclusive := []string{w.UID + "-" + w.Container}
	if !forced(w.Name) {
		exclusive = append(exclusive, w.Name+"-"+w.Container)
	}
	for _, name := range exclusive {
		if err := w.lock(name); err != nil {
			w.note(overlapped)
			return 3
		}
	}
	w.note(started)
	switch behaviour(w.Name) {
	case "crashy":
		select {
		case <-time.After(time.Duration(50+rand.IntN(1500)) * time.Millisecond):
			w.note(crashed)
			return 1
		case <-terms:
		}
	case "parent", "parentforced":
		select {
		case <-time.After(time.Duration(rand.IntN(500)) * time.Millisecond):
			w.stopShim(os.Getppid())
			<-terms
		case <-terms:
		}
	default:
		<-terms
	}
	w.note(stopped)
	if !ignoresStop(w.Name) {
		return 0
	}
	// It never ends by itself within reason, so that only the kill can end it.
	tick := time.NewTicker(20 * time.Millisecond)
	for end := time.After(10 * time.Minute); ; {
		select {
		case <-tick.C:
			w.note(breathed)
		case <-end:
			return 4
		}
	}
}

func (w *instance) note(what string) {
	e := w.entry
	e.What, e.At = what, bootClock()
	line, err := json.Marshal(e)
	if err == nil {
		// A kill may cut the write short: the next entry then begins a line all the same.
		_, err = w.journal.Write(slices.Concat([]byte{'\n'}, line, []byte{'\n'}))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func (w *instance) lock(name string) error {
	f, err := os.OpenFile(filepath.Join(w.dir, "lock-"+name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	w.locks = append(w.locks, f)
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// stopShim does what a container can do to its parent. Should the shim be dead by now, nobody else is stopped.
func (w *instance) stopShim(pid int) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err == nil && strings.HasPrefix(string(line), shimName) {
		w.note(rebelled)
		_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
	}
}
