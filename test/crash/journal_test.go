package crash

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// checkJournal looks for two instances of one pod name and for a grace that was cut short. Grace gives the
// seconds that a pod had, by uid; pods that were forced are left out.
//
// spec: LIFE-2, TERM-1, DEL-10, SAFE-1
func checkJournal(journal []entry, grace map[string]time.Duration) error {
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
