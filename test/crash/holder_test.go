package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startInstance starts a workload by hand, as a runtime would that has lost its mind.
func startInstance(t *testing.T, dir, name, uid string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envDir+"="+dir, envName+"="+name, envUID+"="+uid, envContainer+"=main")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// Real processes that do what must not be are noticed: a second instance of a container, also while the first is
// stopped; a second pod of a name; and a stop that nobody wanted.
func TestViolationsAreSeen(t *testing.T) {
	for what, tc := range map[string]struct {
		freeze     bool
		name, uid  string // of the second
		stop, want bool
		message    string
	}{
		"another name":      {name: "polite-b", uid: "v"},
		"another uid":       {name: "polite-a", uid: "v", message: "another instance"},
		"same pod":          {name: "polite-a", uid: "u", message: "another instance"},
		"same pod, frozen":  {freeze: true, name: "polite-a", uid: "u", message: "another instance"},
		"forced successor":  {name: "forced-a", uid: "v"},
		"stopped by nobody": {name: "polite-b", uid: "v", stop: true, message: "nobody wanted"},
		"stopped":           {name: "polite-b", uid: "v", stop: true, want: true},
	} {
		t.Run(what, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "crash")
			if err != nil {
				t.Fatal(err)
			}
			done := startGuard(t, dir)
			var cmds []*exec.Cmd
			defer func() {
				done()
				for _, cmd := range cmds {
					_ = cmd.Wait() // it was killed
				}
			}()
			j := newJudge(&history{pods: map[string]*fate{"u": {deleting: tc.want}}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			// untilLines waits until the journal has so many, and returns what the judge says of them.
			untilLines := func(n int) error {
				if err := eventually(ctx, func() error {
					text, err := os.ReadFile(filepath.Join(dir, "journal"))
					if lines := strings.Count(string(text), "}\n"); lines < n {
						return errors.Join(err, fmt.Errorf("%d lines", lines))
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				return j.read(dir)
			}
			cmds = append(cmds, startInstance(t, dir, strings.ReplaceAll(tc.name, "b", "a"), "u"))
			if err := untilLines(1); err != nil {
				t.Fatal(err)
			}
			first, err := identify(cmds[0].Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			if tc.freeze {
				if err := first.signal(unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			cmds = append(cmds, startInstance(t, dir, tc.name, tc.uid))
			err = untilLines(2)
			if tc.stop {
				if e := first.signal(unix.SIGTERM); e != nil {
					t.Fatal(e)
				}
				err = errors.Join(err, untilLines(3))
			}
			err = errors.Join(err, j.check(nil)) // none has ended
			if (err == nil) != (tc.message == "") || err != nil && !strings.Contains(err.Error(), tc.message) {
				t.Errorf("got %v, want %q", err, tc.message)
			}
		})
	}
}
