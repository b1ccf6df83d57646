package host

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// someUser is one who may do nothing special on the machine.
const someUser = 54321

// The containers of images are the same for a user who is not root: the tests of package host that run them pass for
// such a one, too, where user namespaces are allowed.
//
// spec: SAFE-5, CTR-6
func TestRootImagesOfUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("it takes root to become somebody else")
	}
	withImages(t) // Or it is skipped.
	cmd := asSomeUser(t, "-test.run=^TestRootImage")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Nor do attacks get any further in the containers of a user who is not root, though the user is what their root is
// on the machine.
//
// spec: SEC-1, SAFE-5
func TestRootEscapesOfUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("it takes root to become somebody else")
	}
	withImages(t) // Or it is skipped.
	cmd := asSomeUser(t, "-test.run=^TestRootEscape[A-Z]")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// asSomeUser returns this test's program, to be run by a user who may do nothing special on the machine. It leaves out
// the tests that are left out here.
func asSomeUser(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	home, err := os.MkdirTemp("", "mp-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	program := filepath.Join(home, "host.test") // Where that user gets to.
	b, err := os.ReadFile(testBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	writeProgram(t, program, b)
	if err := os.Chown(home, someUser, someUser); err != nil {
		t.Fatal(err)
	}
	limit := 8 * time.Minute
	if d, ok := t.Deadline(); ok {
		limit = time.Until(d) - 30*time.Second // So that it says first what it waits for.
	}
	args = append(args, "-test.skip="+flag.Lookup("test.skip").Value.String(), "-test.timeout="+limit.String(), "-test.v")
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+home, "HOME="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: someUser, Gid: someUser}}
	return cmd
}
