package shim

import (
	"errors"
	"os"
	"strconv"
	"syscall"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// command is a program that was found, with its arguments.
type command struct {
	path string // What is executed; relative to dir.
	args []string
	dir  string
}

// resolve finds the program as a shell would: by PATH of the container's environment unless the name has a slash. The
// errors are for the person who wrote the manifest.
func resolve(args, env []string, dir string) (*command, error) {
	if len(args) == 0 || args[0] == "" {
		return nil, errors.New(`no command: image "host" has no default one`)
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil, errors.New("working directory " + strconv.Quote(dir) + " does not exist or is not a directory")
	}
	name := args[0]
	if sys.Index(name, "/") >= 0 {
		return &command{path: name, args: args, dir: dir}, nil
	}
	search := ""
	for _, e := range env {
		if sys.HasPrefix(e, "PATH=") {
			search = e[len("PATH="):]
		}
	}
	refused := ""
	for _, d := range sys.Split(search, ':') {
		if d == "" {
			continue // An empty entry would mean the working directory.
		}
		path := d + "/" + name
		st, err := os.Stat(path)
		if err != nil || st.IsDir() {
			continue
		}
		if st.Mode()&0o111 != 0 {
			return &command{path: path, args: args, dir: dir}, nil
		}
		refused = path
	}
	if refused != "" {
		return nil, errors.New("command " + strconv.Quote(refused) + ": permission denied (it is not executable)")
	}
	return nil, errors.New("command " + strconv.Quote(name) + " not found in PATH " + strconv.Quote(search))
}

// explain puts the error of an exec in words.
func (c *command) explain(err error) error {
	name := "command " + strconv.Quote(c.path)
	var e syscall.Errno
	if !errors.As(err, &e) {
		return err
	}
	switch e {
	case syscall.ENOENT:
		path := c.path
		if path[0] != '/' {
			path = c.dir + "/" + path
		}
		if _, missing := os.Stat(path); missing == nil {
			return errors.New(name + " exists, but the interpreter that it names does not")
		}
		return errors.New(name + " does not exist")
	case syscall.EACCES, syscall.EPERM:
		return errors.New(name + ": permission denied")
	case syscall.ENOEXEC:
		return errors.New(name + " is neither a program for this machine nor a script that begins with #!")
	case syscall.E2BIG:
		return errors.New(name + ": arguments and environment are too long")
	}
	return errors.New(name + " cannot be executed: " + e.Error())
}
