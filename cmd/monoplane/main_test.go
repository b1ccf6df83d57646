package main

import (
	"bytes"
	"errors"
	"testing"
)

func TestOneLine(t *testing.T) {
	err := errors.Join(errors.New("a: b"), errors.Join(errors.New("c"), errors.New("a: b")))
	if got := oneLine(err); got != "a: b; c" {
		t.Errorf("got %q", got)
	}
}

// A group of commands prints its help, but not for a command that it does not have.
func TestUnknownCommand(t *testing.T) {
	for _, args := range [][]string{{"nothing"}, {"snapshot", "nothing"}} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), programName, args, &stdout, &stderr)
		if code != 1 || stdout.Len() > 0 || !bytes.Contains(stderr.Bytes(), []byte(`unknown command "nothing"`)) {
			t.Errorf("%v: code %d, stdout %q, stderr %q", args, code, &stdout, &stderr)
		}
		if code := run(t.Context(), programName, args[:len(args)-1], &stdout, &stderr); code != 0 || stdout.Len() == 0 {
			t.Errorf("%v without it: code %d", args, code)
		}
	}
}

// By a symlink the program is a plugin of kubectl: it has the same commands, and calls itself as the user does.
// spec: CLI-1
func TestPlugin(t *testing.T) {
	for file, want := range map[string]string{
		"monoplane": "monoplane", "/usr/bin/monoplane": "monoplane", "monoplane-2": "monoplane", "": "monoplane",
		"kubectl-monoplane": "kubectl monoplane", "/home/jane/bin/kubectl-monoplane": "kubectl monoplane",
		"kubectl-monoplane.exe": "kubectl monoplane",
	} {
		if got := calledAs([]string{file}); got != want {
			t.Errorf("%s is called %q, want %q", file, got, want)
		}
	}
	for _, name := range []string{programName, pluginName} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), name, []string{"--help"}, &stdout, &stderr); code != 0 {
			t.Errorf("%s: code %d, %s", name, code, &stderr)
		}
		for _, line := range []string{
			"\n  " + name + " up\n", "$(" + name + " kubeconfig)", "\n  " + name + " [command]\n",
		} {
			if !bytes.Contains(stdout.Bytes(), []byte(line)) {
				t.Errorf("%s --help has no %q:\n%s", name, line, &stdout)
			}
		}
		stdout.Reset()
		if code := run(t.Context(), name, []string{"why", "--help"}, &stdout, &stderr); code != 0 ||
			!bytes.Contains(stdout.Bytes(), []byte("\n  "+name+" why ")) {
			t.Errorf("%s why --help: code %d\n%s", name, code, &stdout)
		}
		if code := run(t.Context(), name, []string{"nothing"}, &stdout, &stderr); code != 1 ||
			!bytes.HasPrefix(stderr.Bytes(), []byte(name+": unknown command")) {
			t.Errorf("%s nothing: code %d, %s", name, code, &stderr)
		}
	}
}
