package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what takes a fraction of it on an idle machine.
const patience = 2 * time.Minute

// poll asks until the answer is yes; after the deadline it fails with the last detail. What takes long to ask, as of
// kubectl, is asked less often, so that most of the machine is left for what is waited for. This is the only place
// where these tests wait by time for processes they do not control.
func poll(deadline time.Duration, ask func() (done bool, detail string)) error {
	end := time.Now().Add(deadline)
	for {
		asked := time.Now()
		done, detail := ask()
		if done {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not after %v; %s", deadline, detail)
		}
		time.Sleep(min(max(20*time.Millisecond, 2*time.Since(asked)), time.Second))
	}
}

// eventually fails the test unless the answer is yes in time.
func eventually(t *testing.T, what string, ask func() (done bool, detail string)) {
	t.Helper()
	if err := poll(patience, ask); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// capture holds what a process prints.
type capture struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.Write(p)
}

func (c *capture) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.String()
}

// tail returns the last n lines, without those that contain one of the texts.
func (c *capture) tail(n int, without ...string) string {
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(c.String()), "\n"), func(line string) bool {
		return slices.ContainsFunc(without, func(text string) bool { return strings.Contains(line, text) })
	})
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// waitFor waits until the output matches.
func (c *capture) waitFor(t *testing.T, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	eventually(t, "output like "+pattern, func() (bool, string) {
		return re.MatchString(c.String()), "got:\n" +
			c.String()
	})
}

// alive says whether a process runs; a zombie does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !os.IsNotExist(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// holders returns the processes that hold a file below dir open: the server and the shims of its pods.
func holders(dir string) []int {
	var pids []int
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(target, dir+"/") {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err == nil && pid != os.Getpid() && (len(pids) == 0 || pids[len(pids)-1] != pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// writeProgram writes a program that anybody may run. No process that another test begins at that moment gets hold of
// the open file: the kernel refuses to run one that somebody may still write to.
func writeProgram(path string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, text, 0o755) //nolint:gosec // it is run
}

// box is a directory through which a test and the script of a pod talk.
type box struct{ dir string }

func newBox(t *testing.T) box {
	t.Helper()
	return box{t.TempDir()}
}

// sh puts the box's directory in the place of BOX in a script.
func (b box) sh(script string) string { return strings.ReplaceAll(script, "BOX", b.dir) }

func (b box) read(name string) string {
	data, _ := os.ReadFile(filepath.Join(b.dir, name)) // A missing file is an empty one.
	return string(data)
}

func (b box) put(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// pid waits for a script to say its process id in the file, and returns it.
func (b box) pid(t *testing.T, name string) int {
	t.Helper()
	pid := 0
	eventually(t, "a process id in "+name, func() (bool, string) {
		text := b.read(name)
		pid, _ = strconv.Atoi(strings.TrimSpace(text))
		return pid > 0 && strings.HasSuffix(text, "\n"), text
	})
	return pid
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("end of process %d", pid), func() (bool, string) { return !alive(pid), "" })
}
