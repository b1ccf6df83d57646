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
		code := run(t.Context(), args, &stdout, &stderr)
		if code != 1 || stdout.Len() > 0 || !bytes.Contains(stderr.Bytes(), []byte(`unknown command "nothing"`)) {
			t.Errorf("%v: code %d, stdout %q, stderr %q", args, code, &stdout, &stderr)
		}
		if code := run(t.Context(), args[:len(args)-1], &stdout, &stderr); code != 0 || stdout.Len() == 0 {
			t.Errorf("%v without it: code %d", args, code)
		}
	}
}
