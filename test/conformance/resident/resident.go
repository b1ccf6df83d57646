// Package resident keeps processes of kubectl for scripts that call it hundreds of times: a start costs ten times what
// most commands do. A small program named kubectl, which stands first in the PATH of the scripts (see the folder
// kubectl), hands its arguments, environment, folder and open files to one of these processes, and ends as the command
// there ends.
//
// One command at a time runs in a process of kubectl's own code, reads and writes the caller's files, and is killed
// with its caller. What earlier commands leave there is connections and compiled schemas; a process in which more is
// left is replaced by another one. If no process is free, the caller becomes the kubectl that `make kubectl` builds.
package resident

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Variables of a resident process and of its callers.
const (
	Socket  = "RESIDENT_KUBECTL"         // The path of the socket on which the processes take commands.
	Program = "RESIDENT_KUBECTL_PROGRAM" // The path of the kubectl that callers become when none is free.
	serves  = "RESIDENT_KUBECTL_SERVES"  // Set in the processes.
)

// Files are how many files a caller hands over: its standard input, output and error.
const Files = 3

// Taken is what a process says to a caller whose command it will run.
const Taken = 't'

// Command is what a caller asks for.
type Command struct {
	Args, Env []string
	Dir       string
}

// Start starts count processes of the running test binary, whose TestMain calls Serve, and replaces each that ends,
// until the context does. It returns the socket that they take commands on, which lies in the folder.
func Start(ctx context.Context, dir string, count int, env []string) (socket string, wait func(), err error) {
	socket = filepath.Join(dir, "kubectl.sock")
	program, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return "", nil, err
	}
	file, err := l.File()
	if err != nil {
		return "", nil, errors.Join(err, l.Close())
	}
	var all sync.WaitGroup
	for range count {
		all.Go(func() {
			for ctx.Err() == nil {
				c := exec.CommandContext(ctx, program)
				c.Env = append(slices.Clone(env), serves+"=yes")
				c.ExtraFiles = []*os.File{file}
				_ = c.Run() // It ends with a command that ends its process, and with its caller.
			}
		})
	}
	return socket, func() {
		all.Wait()
		_ = errors.Join(file.Close(), l.Close()) // Nobody listens any more.
	}, nil
}

// Serve runs commands, and does not return, in a process that Start has started. In others it does nothing. run runs
// kubectl with the arguments in os.Args, and returns how it ends.
func Serve(run func() (code int)) {
	if os.Getenv(serves) == "" {
		return
	}
	if err := serve(run); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(run func() int) error {
	const listener = 3 // The first of ExtraFiles.
	l, err := net.FileListener(os.NewFile(listener, "listener"))
	if err != nil {
		return err
	}
	null, err := syscall.Open(os.DevNull, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		c, ok := conn.(*net.UnixConn)
		if !ok {
			return fmt.Errorf("a connection of type %T", conn)
		}
		again, err := one(c, null, run)
		if err != nil || !again {
			return errors.Join(err, c.Close())
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
}

// one runs the command of one caller. again says whether the process is fit for another one.
func one(c *net.UnixConn, null int, run func() int) (again bool, err error) {
	if _, err := c.Write([]byte{Taken}); errors.Is(err, syscall.EPIPE) {
		return true, nil // The caller has gone.
	} else if err != nil {
		return false, err
	}
	command, files, err := receive(c)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if err := standard(files); err != nil {
		return false, err
	}
	for _, file := range files {
		if err := syscall.Close(file); err != nil {
			return false, err
		}
	}
	os.Clearenv()
	for _, e := range command.Env {
		name, value, _ := strings.Cut(e, "=")
		if err := os.Setenv(name, value); err != nil {
			return false, err
		}
	}
	if err := os.Chdir(command.Dir); err != nil {
		return false, err
	}
	var ended atomic.Bool
	go func() {
		// A caller says nothing more: this returns when it has gone, or when its connection is closed below.
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) && !ended.Load() {
			os.Exit(1)
		}
	}()
	os.Args = command.Args
	code := run()
	// Whoever reads the caller's output to its end must not wait for the next command.
	if err := standard([]int{null, null, null}); err != nil {
		return false, err
	}
	ended.Store(true)
	_, err = c.Write([]byte{byte(code)})
	return !verbose(command.Args) && !watches(), err
}

// verbose says whether a command has changed how much the process logs.
func verbose(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		return strings.HasPrefix(arg, "-v") || strings.HasPrefix(arg, "--v=")
	})
}

// watches says whether a watch that a command has ended is still running here. What it logs would be printed by the
// next command.
func watches() bool {
	const most = 1 << 20
	stacks := make([]byte, most)
	return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("k8s.io/client-go/tools/"))
}

// standard makes files the standard input, output and error of the process. A command may have closed what was.
// Invariant: the three are open between commands, so that no other file gets their numbers.
func standard(files []int) error {
	for i, file := range []**os.File{&os.Stdin, &os.Stdout, &os.Stderr} {
		if err := syscall.Dup3(files[i], i, 0); err != nil {
			return err
		}
		if int((*file).Fd()) != i {
			*file = os.NewFile(uintptr(i), (*file).Name())
		}
	}
	return nil
}

// receive reads a command and the files that come with its first byte.
func receive(c *net.UnixConn) (*Command, []int, error) {
	first, rights := make([]byte, 1), make([]byte, syscall.CmsgSpace(Files*4))
	n, m, _, _, err := c.ReadMsgUnix(first, rights)
	if err != nil {
		return nil, nil, err
	}
	if n == 0 {
		return nil, nil, io.EOF
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:m])
	if err != nil || len(messages) != 1 {
		return nil, nil, errors.Join(fmt.Errorf("%d messages with files", len(messages)), err)
	}
	files, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(files) != Files {
		return nil, nil, errors.Join(fmt.Errorf("%d files", len(files)), err)
	}
	var command Command
	return &command, files, json.NewDecoder(c).Decode(&command)
}
