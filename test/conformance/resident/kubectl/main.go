// Command kubectl has a resident process of kubectl run its command, and ends as that does. See package resident.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"monoplane.dev/test/conformance/resident"
)

// patience is how long a process may take to say that it takes the command. Those that run another say nothing.
const patience = 100 * time.Millisecond

func main() {
	code, err := ask()
	if err != nil {
		fmt.Fprintln(os.Stderr, "resident kubectl:", err)
		code = 1
	}
	os.Exit(code)
}

func ask() (code int, err error) {
	if tells() {
		return 0, become()
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: os.Getenv(resident.Socket), Net: "unix"})
	if err != nil {
		return 0, err
	}
	answer := make([]byte, 1)
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := c.Read(answer); err != nil {
		return 0, become()
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return 0, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	command, err := json.Marshal(resident.Command{Args: os.Args, Env: os.Environ(), Dir: dir})
	if err != nil {
		return 0, err
	}
	if _, _, err := c.WriteMsgUnix([]byte{' '}, syscall.UnixRights(0, 1, 2), nil); err != nil {
		return 0, err
	}
	if _, err := c.Write(command); err != nil {
		return 0, err
	}
	if _, err := c.Read(answer); errors.Is(err, io.EOF) {
		return 1, nil // The command has ended its process, which those do that end with 1.
	} else if err != nil {
		return 0, err
	}
	return int(answer[0]), nil
}

// tells says whether the command tells which program it is of, or looks for others.
func tells() bool {
	return slices.ContainsFunc(os.Args[1:], func(arg string) bool {
		return slices.Contains([]string{"version", "plugin", "completion"}, arg) || strings.HasPrefix(arg, "--applyset")
	})
}

// become makes this process the kubectl that `make kubectl` builds.
func become() error {
	program := os.Getenv(resident.Program)
	return fmt.Errorf("%s: %w", program, syscall.Exec(program, os.Args, os.Environ()))
}
