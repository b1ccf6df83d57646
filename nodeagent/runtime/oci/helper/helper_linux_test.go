package helper_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/oci/helper"
)

// Many ask for the helper at once, and all get the same one, once it has been unpacked. Nobody can change it, or take
// away what keeps it from being changed.
func TestProgram(t *testing.T) {
	if _, err := new(helper.Program).File(); errors.Is(err, helper.ErrMissing) {
		t.Skip(err)
	}
	var p helper.Program
	var all [8]*os.File
	var asked sync.WaitGroup
	for i := range all {
		asked.Go(func() {
			f, err := p.File()
			if err != nil {
				t.Error(err)
			}
			all[i] = f
		})
	}
	asked.Wait()
	var magic [4]byte
	for _, f := range all {
		if f == nil || f != all[0] {
			t.Fatalf("the helper was unpacked more than once: %v", all)
		}
	}
	if _, err := all[0].ReadAt(magic[:], 0); err != nil || string(magic[:]) != "\x7fELF" {
		t.Errorf("the helper begins with %q, %v", magic, err)
	}
	const sealed = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if seals, err := unix.FcntlInt(all[0].Fd(), unix.F_GET_SEALS, 0); err != nil || seals != sealed {
		t.Errorf("the helper has the seals %#x, %v, not %#x", seals, err, sealed)
	}
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", all[0].Fd()), os.O_RDWR, 0)
	if err == nil {
		_, err = again.WriteAt(magic[:], 0)
		again.Close()
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ETXTBSY) {
		t.Errorf("the helper is written to: %v", err)
	}
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	if _, err := all[0].Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the helper is open after Close: %v", err)
	}
}

// As root containers can be made, or it is said why not.
func TestCheck(t *testing.T) {
	err := helper.Check()
	switch {
	case errors.Is(err, helper.ErrMissing):
		t.Skip(err)
	case err != nil && os.Geteuid() == 0:
		t.Error(err)
	case err != nil && !strings.Contains(err.Error(), ": "):
		t.Errorf("no reason is given: %v", err)
	}
}

// A directory of an overlay cannot be that of another one, which is said in the kernel's words.
func TestRootOverlay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	dir := t.TempDir()
	for _, name := range []string{"lower", "upper", "work", "overlay", "good"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// The last could not be tried: there is no such directory.
	for _, name := range []string{"good", "none"} {
		if err := helper.Overlay(filepath.Join(dir, name), false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	overlay := filepath.Join(dir, "overlay")
	if err := syscall.Mount("overlay", overlay, "overlay", 0, "lowerdir="+dir+"/lower,upperdir="+dir+"/upper,workdir="+
		dir+"/work"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(overlay, 0); err != nil {
			t.Error(err)
		}
	})
	const want = "an overlay cannot be mounted: invalid argument"
	if err := helper.Overlay(overlay, false); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// Who may make namespaces and nothing in them is told what is not allowed, as with AppArmor's restriction of user
// namespaces.
func TestCheckMayNotMount(t *testing.T) {
	var said bytes.Buffer
	cmd := exec.Cmd{Path: "/proc/self/exe", Args: []string{shim.CheckArgv0}, Dir: "/", Env: []string{}, Stderr: &said}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 ||
		said.String() != "mounts cannot be made private: operation not permitted" {
		t.Errorf("%v: %q", err, said.String())
	}
}
