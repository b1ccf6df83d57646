package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// evidence is what helps to understand a violation.
func (r *run) evidence() string {
	var b strings.Builder
	if s := r.current(); s != nil {
		fmt.Fprintf(&b, "the server said:\n%s\n", s.stderr.tail())
	}
	all, _ := shims(r.dir) // as far as they can be seen
	for _, s := range all {
		fmt.Fprintf(&b, "shim %d in %s\n", s.PID, s.dir)
	}
	running, _ := workloads(r.dir)
	for uid, procs := range running {
		fmt.Fprintf(&b, "pod %s %+v: processes %v\n", uid, r.history.of(uid), procs)
	}
	if keep := os.Getenv("MONOPLANE_CRASH_KEEP"); keep != "" {
		text, err := os.ReadFile(filepath.Join(r.dir, "journal"))
		err = errors.Join(err, os.WriteFile(keep, append(text, b.String()...), 0o600))
		fmt.Fprintf(&b, "the journal is in %s (%v)\n", keep, err)
	}
	return b.String()
}

// table is the outcome as a table for a document.
func (r *run) table() string {
	pods := 0
	for _, f := range r.history.pods {
		if f.acknowledged {
			pods++
		}
	}
	var b strings.Builder
	row := func(what string, n int) { fmt.Fprintf(&b, "| %s | %d |\n", what, n) }
	b.WriteString("| | count |\n|---|---|\n")
	row("rounds", r.rounds)
	row("pods created", pods)
	if r.judge.starts > 0 {
		row("containers started", r.judge.starts)
	}
	r.counts[stopParent] = r.judge.rebels
	for _, k := range r.planner.kinds {
		row(string(k), r.counts[k])
	}
	row("answers late, lost or double", int(r.answered.Load()))
	row("writes and flushes delayed", int(r.disk.delayed.Load()))
	row("writes and flushes failed", int(r.disk.failed.Load()))
	row("servers ended by a failing disk", r.ended)
	row("starts given up on a slow disk", r.slow)
	row("violations", 0)
	return b.String()
}
