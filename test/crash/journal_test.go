package crash

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func readJournal(dir string) ([]entry, error) {
	f, err := os.Open(filepath.Join(dir, "journal"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []entry
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("journal: %w: %q", err, lines.Text())
		}
		out = append(out, e)
	}
	return out, lines.Err()
}

// slack is what the journal's resolution and a busy machine may take off a measured grace.
const slack = 500 * time.Millisecond

// checkJournal looks for two instances of one pod name, for a process that ended although nobody had told it to, and
// for a grace that was cut short. Grace gives the seconds that a pod had, by uid; pods that were forced are left out.
// Running are the processes that have not ended.
//
// spec: LIFE-2, TERM-1, DEL-10, SAFE-1
func checkJournal(journal []entry, grace map[string]time.Duration, running map[int]bool) error {
	term := map[int]entry{}
	last := map[int]entry{}
	for _, e := range journal {
		switch e.What {
		case "overlap":
			return fmt.Errorf("pod %s (%s) was started while another instance of the name ran", e.Name, e.UID)
		case "term":
			if _, ok := term[e.PID]; !ok {
				term[e.PID] = e
			}
		}
		last[e.PID] = e
	}
	for pid, e := range last {
		// A workload ends only because of a signal, and writes SIGTERM down.
		if _, ok := term[pid]; !ok && !running[pid] {
			return fmt.Errorf("process %d of pod %s (%s) ended without a stop signal", pid, e.Name, e.UID)
		}
	}
	for pid, t := range term {
		want, ok := grace[t.UID]
		if !ok {
			continue
		}
		if had := last[pid].At.Sub(t.At); had < want-slack {
			return fmt.Errorf("process %d of pod %s (%s) had %v of its grace of %v", pid, t.Name, t.UID, had, want)
		}
	}
	return nil
}

// The judge of the crash test sees what it is there to see.
func TestCheckJournal(t *testing.T) {
	at := func(what string, pid int, seconds float64) entry {
		return entry{What: what, Name: "stubborn-a", UID: "u", PID: pid, At: time.Unix(0, 0).Add(time.Duration(seconds * float64(time.Second)))}
	}
	grace := map[string]time.Duration{"u": 2 * time.Second}
	for name, tc := range map[string]struct {
		journal []entry
		running map[int]bool
		good    bool
	}{
		"nothing":          {nil, nil, true},
		"runs":             {[]entry{at("start", 7, 0)}, map[int]bool{7: true}, true},
		"had its grace":    {[]entry{at("start", 7, 0), at("term", 7, 1), at("alive", 7, 2.9)}, nil, true},
		"cut short":        {[]entry{at("start", 7, 0), at("term", 7, 1), at("alive", 7, 2)}, nil, false},
		"killed at once":   {[]entry{at("start", 7, 0)}, nil, false},
		"restarted":        {[]entry{at("start", 7, 0), at("start", 8, 1)}, map[int]bool{8: true}, false},
		"another instance": {[]entry{at("start", 7, 0), at("overlap", 8, 1)}, map[int]bool{7: true}, false},
	} {
		if err := checkJournal(tc.journal, grace, tc.running); (err == nil) != tc.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
