//go:build linux && cgo

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	_ "github.com/opencontainers/cgroups/devices" // Without it libcontainer cannot set the rules for devices.
	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter"
	"github.com/sirupsen/logrus"
)

const (
	reportFD  = 3
	consoleFD = 4
	mountsFD  = 5
)

// init is where libcontainer's part of a container's process 1 begins: it executes this program again as "init".
func init() {
	if len(os.Args) > 1 && os.Args[1] == "init" {
		libcontainer.Init()
	}
}

func main() {
	if len(os.Args) >= 2 && os.Args[1] == "hold" {
		os.Exit(hold(os.Args[2:]))
	}
	if len(os.Args) == 3 && os.Args[1] == "remove" {
		os.Exit(remove(os.Args[2]))
	}
	if len(os.Args) >= 2 && os.Args[1] == "pause" {
		os.Exit(pause(os.Args[2:]))
	}
	if len(os.Args) == 2 && os.Args[1] == "reap" {
		reap()
	}
	if len(os.Args) == 2 && os.Args[1] == "check" {
		fmt.Println("ok")
		return
	}
	logrus.SetOutput(io.Discard) // What libcontainer has to say would be in the container's log.
	report := os.NewFile(reportFD, "report")
	pid, err := run(os.Args[1:])
	if err != nil {
		_, _ = report.WriteString("-" + err.Error())
		os.Exit(1)
	}
	if _, err := report.WriteString("+" + strconv.Itoa(pid) + "\n"); err != nil {
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, bufio.NewReader(report)) // Until the shim knows the process.
}

// command is what the shim asks for.
type command struct {
	verb, bundle, id string
	console, shm     bool
	width, height    uint16 // Of the console; 0 leaves it without a size.
	args             []string
}

func parse(args []string) (command, error) {
	c := command{}
	for len(args) > 0 && args[0] != "--" {
		switch {
		case args[0] == "--console":
			c.console = true
		case args[0] == "--shm":
			c.shm = true
		case strings.HasPrefix(args[0], "--width="):
			c.width = size(args[0])
		case strings.HasPrefix(args[0], "--height="):
			c.height = size(args[0])
		case c.verb == "":
			c.verb = args[0]
		case c.bundle == "":
			c.bundle = args[0]
		case c.id == "":
			c.id = args[0]
		default:
			return c, fmt.Errorf("unexpected argument %q", args[0])
		}
		args = args[1:]
	}
	if len(args) > 1 {
		c.args = args[1:]
	}
	if c.id == "" {
		return c, errors.New("the helper needs a verb, a bundle and an ID")
	}
	return c, nil
}

// size reads a size of a terminal; one that makes no sense is none.
func size(option string) uint16 {
	_, text, _ := strings.Cut(option, "=")
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

func run(args []string) (pid int, err error) {
	c, err := parse(args)
	if err != nil {
		return 0, err
	}
	switch c.verb {
	case "create":
		return create(c)
	case "exec":
		return execute(c)
	case "checkpoint":
		return 0, checkpoint(c)
	}
	return 0, fmt.Errorf("unknown verb %q", c.verb)
}
