package e2e_test

import (
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// kubectl runs the unmodified kubectl against one namespace.
type kubectl struct {
	path, namespace, home, kubeconfig string
	env                               []string // of its processes
	dial                              dialer   // of what runs within this process; nil for its own network
}

func (c *cluster) kubectl(t *testing.T, namespace string) *kubectl {
	t.Helper()
	return newKubectl(t, c.kubeconfig(), namespace)
}

func newKubectl(t *testing.T, kubeconfig, namespace string) *kubectl {
	t.Helper()
	home := t.TempDir()
	return &kubectl{
		path: binary(t, "kubectl"), namespace: namespace, home: home, kubeconfig: kubeconfig,
		env: environment("HOME="+home, "KUBECONFIG="+kubeconfig),
	}
}

func (k *kubectl) command(t *testing.T, args []string) *exec.Cmd {
	t.Helper()
	// Flags before the command's own, so that `-n` in args wins.
	cmd := exec.CommandContext(t.Context(), k.path, append([]string{"--namespace", k.namespace}, args...)...)
	cmd.Env = k.env
	return cmd
}

// endsByItself says whether a command reads nothing from its standard input, and ends when it has done what it is for.
func endsByItself(args []string) bool {
	if len(args) == 0 || !slices.Contains([]string{
		"annotate", "delete", "describe", "events", "get", "label", "logs", "patch", "rollout", "scale", "wait",
	}, args[0]) {
		return false
	}
	return !slices.ContainsFunc(args, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return slices.Contains([]string{"-f", "--filename", "--follow", "-w", "--watch", "--watch-only", "-v", "--v"}, name)
	})
}

// run returns stdout and stderr in one, and the exit code.
func (k *kubectl) run(t *testing.T, stdin string, args ...string) (string, int) {
	t.Helper()
	if stdin == "" && endsByItself(args) {
		return k.within(args)
	}
	cmd := k.command(t, args)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// ok runs a command, given as one line, that must succeed.
func (k *kubectl) ok(t *testing.T, line string) string {
	t.Helper()
	out, code := k.run(t, "", words(line)...)
	if code != 0 {
		t.Fatalf("kubectl %s: exit code %d\n%s", line, code, out)
	}
	return out
}

// until runs a command until its output matches.
func (k *kubectl) until(t *testing.T, line, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	var out string
	eventually(t, "kubectl "+line+" like "+pattern, func() (bool, string) {
		out, _ = k.run(t, "", words(line)...)
		return re.MatchString(out), "got:\n" + out
	})
	return out
}

// background starts a command that goes on until it ends by itself or the test ends; done is closed then.
func (k *kubectl) background(t *testing.T, line string) (out *capture, done <-chan struct{}) {
	t.Helper()
	cmd := k.command(t, words(line))
	out = &capture{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // Its output is what counts.
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // It may have ended.
		<-ended
	})
	return out, ended
}

// step is one command of a table and what it must print.
type step struct {
	line  string // the command; single quotes group words
	stdin string
	want  []string // regular expressions, all of which must match the output
	code  int      // exit code
}

// tour runs steps in order.
func (k *kubectl) tour(t *testing.T, steps []step) {
	t.Helper()
	for _, s := range steps {
		out, code := k.run(t, s.stdin, words(s.line)...)
		if code != s.code {
			t.Errorf("kubectl %s: exit code %d, want %d\n%s", s.line, code, s.code, out)
			continue
		}
		for _, want := range s.want {
			if !regexp.MustCompile("(?m)" + want).MatchString(out) {
				t.Errorf("kubectl %s: no match for %s in\n%s", s.line, want, out)
			}
		}
	}
}

// words splits a command line at spaces; single quotes group, without escapes.
func words(line string) []string {
	var out []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}
