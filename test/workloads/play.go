package workloads

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// World is where a scenario is played.
type World interface {
	// Kubectl runs a command with an input.
	Kubectl(ctx context.Context, input string, args []string) error
	// Do does what another step says.
	Do(ctx context.Context, step []string) error
}

// quiet is for how long nothing changes at the end of a step.
const quiet = time.Minute

// most is how long a step takes at most that has not said it.
const most = time.Hour

func (s *Scenario) do(ctx context.Context, w World, step *step) error {
	switch step.do[0] {
	case "kubectl":
		return w.Kubectl(ctx, s.Manifests, step.do[1:])
	case "nothing":
		return nil
	default:
		return w.Do(ctx, step.do)
	}
}

// Play plays the scenario in virtual time: settle waits until everybody in the bubble waits. It returns the text of
// the file with the timelines that were seen, and how they differ from those in the file.
func (s *Scenario) Play(ctx context.Context, w World, o *Observer, settle func()) (seen string, differs, err error) {
	seen = s.head
	before, versions := map[string]string{}, -1
	var errs []error
	for _, step := range s.steps {
		// At a full second, as times in objects are.
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		begin := time.Now()
		if err := s.do(ctx, w, step); err != nil {
			return "", nil, fmt.Errorf("%s: %w", step.text, err)
		}
		if step.do[0] == "asleep" || step.do[0] == "awake" {
			begin = time.Now()
		}
		var timeline []string
		note := func(at time.Duration) (changed bool) {
			var now map[string]string
			if now, versions = o.look(versions); now == nil {
				return false
			}
			for _, line := range differences(before, now) {
				timeline = append(timeline, strings.TrimRight(fmt.Sprintf("%10s  %s", clock(at), line), " "))
			}
			changed = !maps.Equal(before, now)
			before = now
			return changed
		}
		last := time.Since(begin)
		for {
			elapsed := time.Since(begin)
			if step.takes > 0 && elapsed >= step.takes ||
				step.takes == 0 && (elapsed-last > quiet || elapsed >= most) {
				break
			}
			// Just before the second ends: what happens at a full second has had its time by then.
			next := elapsed.Truncate(time.Second) + 990*time.Millisecond
			if next <= elapsed {
				next += time.Second
			}
			if step.endOnly {
				next = step.takes
			}
			time.Sleep(next - elapsed)
			settle()
			if !step.endOnly && note(next.Truncate(time.Second)) {
				last = next
			}
		}
		if step.endOnly {
			note(step.takes)
		}
		if told := o.told(); len(told) > 0 {
			timeline = append(timeline, strings.Repeat(" ", 12)+"events  "+strings.Join(told, ", "))
		}
		seen += step.text + "\n" + strings.Join(append(timeline, ""), "\n")
		if err := step.compare(timeline); err != nil {
			errs = append(errs, err)
		}
	}
	return seen, errors.Join(errs...), o.Broken()
}

// Follow plays the scenario with real processes: wait asks until the answer is yes, or gives up. Each step must come
// to what its timeline ends with, and its events be told.
func (s *Scenario) Follow(
	ctx context.Context, w World, o *Observer, wait func(ask func() (done bool, detail string)) error,
) error {
	want, missing := map[string]string{}, map[string]bool{}
	for _, step := range s.steps {
		if err := s.do(ctx, w, step); err != nil {
			return fmt.Errorf("%s: %w", step.text, err)
		}
		for _, line := range step.want {
			when, rest, _ := strings.Cut(line, " ")
			about, what, _ := strings.Cut(rest, " ")
			switch {
			case when == "events":
				for e := range strings.SplitSeq(rest, ", ") {
					missing[e] = true
				}
			case what == "gone":
				delete(want, about)
			default:
				want[about] = what
			}
		}
		err := wait(func() (bool, string) {
			for _, e := range o.told() {
				delete(missing, e)
			}
			now, _ := o.look(-1)
			for about, text := range now {
				now[about] = tidy(text)
			}
			return maps.Equal(now, want) && len(missing) == 0,
				fmt.Sprintf("there is %v, want %v; not told: %v", now, want, slices.Sorted(maps.Keys(missing)))
		})
		if err != nil {
			return fmt.Errorf("%s: %w", step.text, err)
		}
	}
	return o.Broken()
}

// clock says how long after a step something was.
func clock(at time.Duration) string {
	text := at.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// differences returns what is new, and what is gone.
func differences(before, now map[string]string) []string {
	var out []string
	for _, about := range slices.Sorted(maps.Keys(now)) {
		if was, ok := before[about]; !ok || was != now[about] {
			out = append(out, about+"  "+now[about])
		}
	}
	for _, about := range slices.Sorted(maps.Keys(before)) {
		if _, still := now[about]; !still {
			out = append(out, about+"  gone")
		}
	}
	return out
}

func (s *step) compare(timeline []string) error {
	for i := range max(len(timeline), len(s.want)) {
		var got, want string
		if i < len(timeline) {
			got = tidy(timeline[i])
		}
		if i < len(s.want) {
			want = s.want[i]
		}
		if got != want {
			return fmt.Errorf("%s:\nline %d of the timeline: %s\nwant: %s\nthe whole of it:\n%s", s.text, i+1, got, want,
				strings.Join(timeline, "\n"))
		}
	}
	return nil
}
