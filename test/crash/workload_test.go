package crash

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// The environment of a workload.
const (
	envDir   = "CRASH_DIR"   // where it writes; also marks the processes of a run
	envName  = "CRASH_NAME"  // name of its pod
	envUID   = "CRASH_UID"   // uid of its pod
	envGrace = "CRASH_GRACE" // seconds of its pod's grace, or "exit" to end at the stop signal
)

// entry is one line of the journal.
type entry struct {
	What string // "start", "overlap", "term", "alive"
	Name string
	UID  string
	PID  int
	At   time.Time
}

func TestMain(m *testing.M) {
	if os.Getenv(envDir) != "" {
		os.Exit(workload())
	}
	os.Exit(m.Run())
}

// workload is what a pod runs. It holds a lock on its pod's name as long as it lives, so that a second instance
// of the name is noticed by the kernel, and writes down when it was told to stop and when it was last alive.
func workload() int {
	dir, name := os.Getenv(envDir), os.Getenv(envName)
	terms := make(chan os.Signal, 8)
	signal.Notify(terms, syscall.SIGTERM)
	journal, err := os.OpenFile(filepath.Join(dir, "journal"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	note := func(what string) {
		line, err := json.Marshal(entry{What: what, Name: name, UID: os.Getenv(envUID), PID: os.Getpid(), At: time.Now()})
		if err == nil {
			_, err = journal.Write(append(line, '\n'))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock-"+name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		note("overlap")
		return 3
	}
	note("start")
	grace := os.Getenv(envGrace)
	<-terms
	note("term")
	if grace == "exit" {
		return 0
	}
	seconds, err := strconv.Atoi(grace)
	if err != nil {
		return 2
	}
	// It never ends by itself within reason, so that only the kill can end it.
	tick := time.NewTicker(20 * time.Millisecond)
	for end := time.After(time.Duration(seconds)*time.Second + time.Minute); ; {
		select {
		case <-tick.C:
			note("alive")
		case <-end:
			return 4
		}
	}
}
