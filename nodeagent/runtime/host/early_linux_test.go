package host

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"monoplane.dev/nodeagent/runtime/host/shim"
)

// The shim branches off before the rest of the program is initialised. What it imports decides that: Go initialises
// packages in the order of their paths as soon as their imports are, and everything large needs package unicode, whose
// path comes after this one's.
func TestEarlyInit(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the program is the same")
	ours, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	cmd := exec.Command(testBinary(t))
	cmd.Args = []string{shim.Argv0, "default/test"}
	cmd.Env = []string{"GODEBUG=inittrace=1", "GOMAXPROCS=1"}
	cmd.ExtraFiles = []*os.File{theirs, theirs}
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	ours.Close() // A shim that was told nothing ends with its first connection.
	if err := cmd.Wait(); err != nil {
		t.Fatalf("a shim without a purpose: %v", err)
	}
	if !strings.Contains(trace.String(), "init os @") {
		t.Fatalf("no trace: %q", trace.String())
	}
	for _, p := range []string{"unicode", "reflect", "fmt", "net", "testing", "google.golang.org/protobuf/proto"} {
		if strings.Contains(trace.String(), "init "+p+" @") {
			t.Errorf("package %s is initialised before the shim: see what this package has come to import", p)
		}
	}
}

func socketPair() (a, b *os.File, err error) {
	fd, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd[0]), "ours"), os.NewFile(uintptr(fd[1]), "theirs"), nil
}
