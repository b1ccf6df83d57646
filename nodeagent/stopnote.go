package nodeagent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"monoplane.dev/internal/datadir"
)

// stopNote is the file in StateDir that says when the node began to be emptied. What ended after that, and before the
// next agent began, was ended by the node and not by a failure of its own: it restarts at once. No runtime tells that
// of a container, and the API has no field for it. The file is there until an agent has come back and taken it up; one
// that is lost costs a container its back-off, as after a crash. spec: design decision 13, CTR-3
const stopNote = "stopped-at"

// inOrder is the time in which what ended was ended by the node; empty when from is zero.
type inOrder struct{ from, to time.Time }

func (o inOrder) covers(t time.Time) bool {
	return !o.from.IsZero() && !t.Before(o.from) && t.Before(o.to)
}

func (a *Agent) stopNotePath() string { return filepath.Join(a.cfg.StateDir, stopNote) }

// noteStop writes down that the node is being emptied from now on.
func (a *Agent) noteStop() {
	if a.cfg.StateDir == "" {
		return
	}
	dir, err := datadir.Make(a.cfg.StateDir)
	if err == nil {
		err = dir.Write(stopNote, []byte(now().Format(time.RFC3339Nano)+"\n"))
	}
	if err != nil {
		a.cfg.Logger.Warn("it cannot be noted that the node is being stopped; containers that restart may have to wait",
			"error", err)
	}
}

// sweep removes the files that an agent was writing in its own directory when it was killed.
func (a *Agent) sweep() {
	if a.cfg.StateDir == "" {
		return
	}
	for _, dir := range []string{a.cfg.StateDir, a.savedDir()} {
		if err := datadir.Sweep(dir); err != nil {
			a.cfg.Logger.Warn("files of the agent before this one are left", "error", err)
		}
	}
}

// readStopNote takes up what the agent before this one has noted.
func (a *Agent) readStopNote() inOrder {
	if a.cfg.StateDir == "" {
		return inOrder{}
	}
	text, err := os.ReadFile(a.stopNotePath())
	if errors.Is(err, fs.ErrNotExist) {
		return inOrder{}
	}
	var from time.Time
	if err == nil {
		from, err = time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text)))
	}
	if err != nil {
		a.cfg.Logger.Warn("it is not known since when the node was being stopped", "error", err)
		return inOrder{}
	}
	return inOrder{from, now()}
}

// dropStopNote removes the note, once everything that it is about has been taken up.
func (a *Agent) dropStopNote() {
	if a.cfg.StateDir == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.emptying {
		return // by now it is about the next start
	}
	if err := os.Remove(a.stopNotePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.cfg.Logger.Warn("the note of the last stop cannot be removed", "error", err)
	}
}
