package helper

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"monoplane.dev/internal/userids"
)

// Check returns why containers of images cannot be made here by this user; nil if they can. It runs the helper once
// in namespaces such as a container gets.
func Check() error {
	program, err := Open()
	if err != nil {
		return err
	}
	defer program.Close()
	cmd := exec.Command(fmt.Sprintf("/proc/self/fd/%d", program.Fd()), "check")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
		userids.Single().Prepare(cmd.SysProcAttr)
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		words := strings.TrimSpace(said.String())
		if words != "" {
			words = ": " + words
		}
		return fmt.Errorf("containers cannot be made here: %w%s", err, words)
	}
	return nil
}
