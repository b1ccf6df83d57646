package cni

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

// script makes a program, and returns its path.
func script(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPluginSays(t *testing.T) {
	for name, c := range map[string]struct{ text, want, fails string }{
		"output":     {text: "cat; echo ignored >&2", want: "asked"},
		"leaves":     {text: "sleep 600 & echo done", want: "done\n"},
		"error":      {text: `echo '{"code":11,"msg":"try","details":"later"}'; exit 1`, fails: "try; later"},
		"diagnostic": {text: "echo broken >&2; exit 3", fails: "diagnostic: exit status 3: broken"},
		"nothing":    {text: "exit 3", fails: "nothing: exit status 3"},
		"too much":   {text: "head -c 2000000 /dev/zero", fails: "says more than"},
	} {
		dir := t.TempDir()
		// What is left running goes with the test.
		path := script(t, dir, name, "echo $$ > "+dir+"/group\n"+c.text)
		got, err := new(runner).ExecPlugin(t.Context(), path, []byte("asked"), os.Environ())
		if string(got) != c.want || err != nil && (c.fails == "" || !strings.Contains(err.Error(), c.fails)) ||
			err == nil && c.fails != "" {
			t.Errorf("%s: %.20q, %v", name, got, err)
		}
		_ = unix.Kill(-number(t, dir+"/group"), unix.SIGKILL)
	}
	path := script(t, t.TempDir(), "coded", `echo '{"code":50,"msg":"not yet"}'; exit 1`)
	var told *types.Error
	if _, err := new(runner).ExecPlugin(t.Context(), path, nil, nil); !errors.As(err, &told) || told.Code != 50 {
		t.Errorf("the code of an error is lost: %v", err)
	}
}

func number(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A plugin that hangs is killed with what it has started, which has its output open.
func TestPluginHangs(t *testing.T) {
	dir := t.TempDir()
	path := script(t, dir, "hang", "sleep 600 & echo $! > "+dir+"/child.new; mv "+dir+"/child.new "+dir+"/child; wait")
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	go func() {
		defer cancel(enough)
		for range 1000 {
			if _, err := os.Stat(dir + "/child"); err == nil {
				return
			}
			<-time.After(10 * time.Millisecond)
		}
	}()
	began := time.Now()
	_, err := new(runner).ExecPlugin(ctx, path, nil, os.Environ())
	if !errors.Is(err, enough) || !strings.Contains(err.Error(), path) {
		t.Errorf("it ends with %v", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it takes %s", took)
	}
	gone(t, number(t, dir+"/child"))
}

// gone waits until a process has ended: who reaps it takes a moment.
func gone(t *testing.T, pid int) {
	t.Helper()
	eventually(t, func() bool {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || strings.Contains(string(text), ") Z ")
	})
}

// eventually waits until something is so.
func eventually(t *testing.T, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("it is not so after 30 s")
		}
	}
}
