package crash

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// grace is what pods that ignore the stop signal get, and slack what the journal's resolution and a busy machine may
// take off it when it is measured.
const (
	grace = 4 * time.Second
	slack = 1500 * time.Millisecond
)

// What the name of a pod says about it: the part before the dash is its behaviour.
func behaviour(name string) string { b, _, _ := strings.Cut(name, "-"); return b }

// forced pods are the only ones that are ever deleted by force.
func forced(name string) bool { return strings.HasSuffix(behaviour(name), "forced") }

// ignoresStop says that the pod's processes end by SIGKILL only, so that their grace can be measured.
func ignoresStop(name string) bool {
	return behaviour(name) == "stubborn" || behaviour(name) == "deadline"
}

// trace is what the journal has of one instance.
type trace struct {
	entry         // its first
	last          time.Duration
	told, crashed bool
	term          time.Duration
}

// judge reads the journal and judges the instances that have ended.
type judge struct {
	history *history
	mu      sync.Mutex
	offset  int64              // how much of the journal it has read
	traces  map[process]*trace // of what has not been judged
	killed  map[process]bool   // by us
	starts  int
	rebels  int
}

// spare forgives the end of a process that the test kills.
func (j *judge) spare(p process) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.killed[p] = true
}

// How a line begins whose writer was killed within the write, and one that must not be passed over even so.
var (
	tornStart   = []byte(`{"What":"`)
	tornOverlap = []byte(`{"What":"` + overlapped)
)

// read takes in what is new in the journal.
func (j *judge) read(dir string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	f, err := os.Open(filepath.Join(dir, "journal"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(j.offset, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // the rest of a line comes the next time
		}
		if err != nil {
			return err
		}
		j.offset += int64(len(line))
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var e entry
		switch err := json.Unmarshal(line, &e); {
		case err == nil:
		case bytes.HasPrefix(line, tornStart) && !bytes.HasPrefix(line, tornOverlap):
			continue // its writer was killed in the middle of the write
		default:
			return fmt.Errorf("journal: %w: %q", err, line)
		}
		if err := j.feed(e); err != nil {
			return err
		}
	}
}

// feed takes in one entry. A second instance is a violation whatever was done to the first.
//
// spec: LIFE-2, SAFE-1, SAFE-4, SAFE-5
func (j *judge) feed(e entry) error {
	t := j.traces[e.process]
	if t == nil {
		t = &trace{entry: e}
		j.traces[e.process] = t
	}
	t.last = e.At
	switch e.What {
	case overlapped:
		return fmt.Errorf("container %s of pod %s (%s) was started as process %d while another instance of it ran",
			e.Container, e.Name, e.UID, e.PID)
	case started:
		j.starts++
	case rebelled:
		j.rebels++
		j.history.change(e.UID, e.Name, func(f *fate) { f.sick = true })
	case crashed:
		t.crashed = true
	case stopped:
		if !t.told {
			t.told, t.term = true, e.At
		}
	}
	return nil
}

// instances returns those that have not been judged.
func (j *judge) instances() map[process]bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := map[process]bool{}
	for p := range j.traces {
		all[p] = true
	}
	return all
}

// check judges all instances by what they were told, and those that have ended by how.
//
// spec: TERM-1, DEL-10, SAFE-1
func (j *judge) check(ended map[process]bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for p, t := range j.traces {
		if err := j.checkStop(t); err != nil {
			return err
		}
		if !ended[p] {
			continue
		}
		if err := j.checkEnd(t); err != nil {
			return err
		}
		delete(j.traces, p)
		delete(j.killed, p)
	}
	return nil
}

// checkStop looks for a stop that nobody wanted.
func (j *judge) checkStop(t *trace) error {
	f := j.history.of(t.UID)
	wanted := f.deleting || f.sick || behaviour(t.Name) == "deadline"
	if t.told && !wanted && !j.history.stopping(t.term) {
		return fmt.Errorf("process %d of pod %s (%s) was told to stop, and nobody wanted that", t.PID, t.Name, t.UID)
	}
	return nil
}

func (j *judge) checkEnd(t *trace) error {
	f := j.history.of(t.UID)
	if t.crashed || j.killed[t.process] || f.sick || f.forced {
		return nil
	}
	if !t.told {
		// A workload ends only because of a signal, and writes SIGTERM down.
		return fmt.Errorf("process %d of pod %s (%s) ended without a stop signal", t.PID, t.Name, t.UID)
	}
	if had := t.last - t.term; ignoresStop(t.Name) && had < grace-slack {
		return fmt.Errorf("process %d of pod %s (%s) had %v of its grace of %v", t.PID, t.Name, t.UID, had, grace)
	}
	return nil
}

// The judge of the crash test sees what it is there to see.
func TestJudge(t *testing.T) {
	a, b := process{7, 1}, process{8, 2}
	at := func(what string, p process, seconds float64) entry {
		e := entry{What: what, Name: "stubborn-a", UID: "u", Container: "main", process: p}
		e.At = time.Duration(seconds * float64(time.Second))
		return e
	}
	deleting := fate{name: "stubborn-a", deleting: true}
	for name, tc := range map[string]struct {
		fate    fate
		journal []entry
		running map[process]bool
		good    bool
	}{
		"nothing":       {fate{}, nil, nil, true},
		"runs":          {fate{}, []entry{at(started, a, 0)}, map[process]bool{a: true}, true},
		"had its grace": {deleting, []entry{at(started, a, 0), at(stopped, a, 1), at(breathed, a, 4.9)}, nil, true},
		"cut short":     {deleting, []entry{at(started, a, 0), at(stopped, a, 1), at(breathed, a, 3)}, nil, false},
		"stopped twice": {
			deleting, []entry{at(started, a, 0), at(stopped, a, 1), at(stopped, a, 4.5), at(breathed, a, 4.9)}, nil, true,
		},
		"killed at once":   {deleting, []entry{at(started, a, 0)}, nil, false},
		"killed by us":     {fate{sick: true}, []entry{at(started, a, 0)}, nil, true},
		"crashed":          {fate{}, []entry{at(started, a, 0), at(crashed, a, 1)}, nil, true},
		"unwanted":         {fate{}, []entry{at(started, a, 0), at(stopped, a, 1)}, map[process]bool{a: true}, false},
		"restarted":        {deleting, []entry{at(started, a, 0), at(started, b, 1)}, map[process]bool{b: true}, false},
		"another instance": {fate{}, []entry{at(started, a, 0), at(overlapped, b, 1)}, map[process]bool{a: true}, false},
		"another, sick": {fate{sick: true}, []entry{at(started, a, 0), at(overlapped, b, 1)}, map[process]bool{a: true},
			false},
		"same pid": {deleting, []entry{at(started, a, 0)}, map[process]bool{{a.PID, 9}: true}, false},
	} {
		j := newJudge(&history{pods: map[string]*fate{"u": &tc.fate}})
		var err error
		for _, e := range tc.journal {
			err = errors.Join(err, j.feed(e))
		}
		ended := j.instances()
		maps.DeleteFunc(ended, func(p process, _ bool) bool { return tc.running[p] })
		if err = errors.Join(err, j.check(ended)); (err == nil) != tc.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A writer that is killed within a write leaves part of an entry. Nothing else is passed over.
func TestTornEntries(t *testing.T) {
	whole := "\n" + `{"What":"start","Name":"polite-a","UID":"u","Container":"main","PID":7,"Start":1,"At":5}` + "\n"
	torn := "\n" + `{"What":"alive","Name":"stub`
	for _, tc := range []struct {
		text   string
		starts int
		good   bool
	}{
		{whole + whole, 2, true},
		{whole + torn + whole, 2, true},
		{whole + torn, 1, true},
		{torn + whole, 1, true},
		{whole + "\n" + `{"What":"overlap","Na` + whole, 1, false},
		{"something else\n", 0, false},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "journal"), []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		j := newJudge(&history{})
		if err := j.read(dir); (err == nil) != tc.good || j.starts != tc.starts {
			t.Errorf("%q: %d starts, %v", tc.text, j.starts, err)
		}
	}
}

func newJudge(h *history) *judge {
	return &judge{history: h, traces: map[process]*trace{}, killed: map[process]bool{}}
}

// spec: LIFE-1, LIFE-10, DEL-7, DEL-13
func TestHistory(t *testing.T) {
	pod := func(phase string, deleting bool) []*corev1.Pod {
		p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "polite-a", Uid: "u"}}
		p.Status = &corev1.PodStatus{Phase: phase}
		if deleting {
			p.Metadata.DeletionTimestamp = &metav1.Time{Seconds: 1}
		}
		return []*corev1.Pod{p}
	}
	h := func(f fate) *history { return &history{pods: map[string]*fate{"u": &f}} }
	a, b := map[string][]process{"u": {{7, 1}}}, map[string][]process{"u": {{7, 2}}}
	for name, tc := range map[string]struct {
		err  error
		good bool
	}{
		"there":             {h(fate{acknowledged: true}).check(pod("Running", false)), true},
		"lost":              {h(fate{acknowledged: true}).check(nil), false},
		"never promised":    {h(fate{}).check(nil), true},
		"deleted":           {h(fate{acknowledged: true, deleting: true}).check(nil), true},
		"deletion is lost":  {h(fate{deleting: true, deleted: true}).check(pod("Running", false)), false},
		"deletion goes on":  {h(fate{deleting: true, deleted: true}).check(pod("Running", true)), true},
		"onwards":           {h(fate{phase: "Pending"}).see(pod("Running", false)), true},
		"back":              {h(fate{phase: "Running"}).see(pod("Pending", false)), false},
		"from the dead":     {h(fate{phase: "Failed"}).see(pod("Running", false)), false},
		"another end":       {h(fate{phase: "Failed"}).see(pod("Succeeded", false)), false},
		"runs":              {h(fate{}).outlived(a, a, pod("Running", false)), true},
		"outlives":          {h(fate{}).outlived(a, a, nil), false},
		"outlives by force": {h(fate{forced: true}).outlived(a, a, nil), true},
		"ends in time":      {h(fate{}).outlived(a, nil, nil), true},
		"same pid":          {h(fate{}).outlived(a, b, nil), true},
		"runs when failed":  {h(fate{}).outlived(a, a, pod("Failed", false)), false},
		"ledger":            {(&history{ledger: 3}).checkLedger(4), true},
		"ledger is back":    {(&history{ledger: 3}).checkLedger(2), false},
	} {
		if (tc.err == nil) != tc.good {
			t.Errorf("%s: %v", name, tc.err)
		}
	}
}
