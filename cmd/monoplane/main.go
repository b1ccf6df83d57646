// Command monoplane runs a pod control plane: etcd, the Kubernetes API over gRPC and REST, the scheduler,
// the controllers and a node agent, in one process. `monoplane up` starts it; `monoplane --help` says the
// rest. This package only reads settings and prints; all wiring is in package monoplane.dev.
package main

import (
	// First, because a re-executed shim must branch off before anything else is set up.
	_ "monoplane.dev/nodeagent/runtime/host/shim"

	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// version is set by the linker.
var version = "dev"

func main() {
	os.Exit(run(context.Background(), calledAs(os.Args), os.Args[1:], os.Stdout, os.Stderr))
}

// The program is called monoplane; as a plugin of kubectl, which a symlink of this name makes it, `kubectl monoplane`.
const (
	programName = "monoplane"
	pluginFile  = "kubectl-monoplane"
	pluginName  = "kubectl monoplane"
)

// calledAs returns what the user calls the program, by the name of the file that was started.
func calledAs(args []string) string {
	if len(args) > 0 && strings.TrimSuffix(filepath.Base(args[0]), ".exe") == pluginFile {
		return pluginName
	}
	return programName
}

// run executes one command line and returns the process's exit code. Every failure is one line on stderr. Name is what
// the user calls the program.
func run(ctx context.Context, name string, args []string, stdout, stderr io.Writer) int {
	root := newRootCommand(name, stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	default:
		fmt.Fprintf(stderr, "%s: %s\n", name, oneLine(err))
		return 1
	}
}

// oneLine joins the lines of an error, each said once: several errors come as several lines.
func oneLine(err error) string {
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(err.Error()), "\n") {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// exitCode ends the program with a code after everything worth saying has been said.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }
