package helper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"monoplane.dev/internal/userids"
)

// Remove removes a directory with what users of containers have left there, whose ids are those of maps. Only a
// process in a user namespace with these ids may do that. Links are not followed.
func Remove(ctx context.Context, program *os.File, maps userids.Maps, dir string) error {
	cmd := exec.CommandContext(ctx, fmt.Sprintf("/proc/self/fd/%d", program.Fd()), "remove", dir)
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	maps.Prepare(cmd.SysProcAttr)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	runtime.LockOSThread() // The death signal comes with the end of the thread, which others may bring about.
	defer runtime.UnlockOSThread()
	begin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	if err = maps.Apply(ctx, cmd.Process.Pid); err == nil {
		_, err = begin.Write([]byte{1})
	}
	_ = begin.Close() // Without a byte it ends.
	if waited := cmd.Wait(); waited != nil {
		err = errors.Join(err, fmt.Errorf("%s: %w: %s", dir, waited, strings.TrimSpace(said.String())))
	}
	return err
}
