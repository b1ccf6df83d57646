package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Driver is a cluster as a scenario needs it, with the scenario's pod in it.
type Driver interface {
	// Delete begins the deletion of the pod; a nil grace leaves it to the pod.
	Delete(ctx context.Context, graceSeconds *int64) error
	// Events returns the pod's events so far, each as its reason and message.
	Events(ctx context.Context) ([]string, error)
	// Patch changes the pod, or a subresource of it such as its status, by a strategic merge patch.
	Patch(ctx context.Context, subresource string, patch []byte) error
}

// Run plays the script on a pod that was just created and checks what was seen; seen is fed by the caller. The error
// says which line failed, and what was seen.
func (s *Scenario) Run(ctx context.Context, d Driver, seen *History) error {
	for _, line := range s.script {
		if err := s.step(ctx, d, seen, strings.Fields(line)); err != nil {
			return fmt.Errorf("%s (%s): script: %s: %w\n%s", s.Name, s.Title, line, err, seen)
		}
	}
	for _, line := range s.expect {
		if err := s.becomes(ctx, d, seen, line); err != nil {
			return fmt.Errorf("%s (%s): expect: %s: %w\n%s", s.Name, s.Title, line, err, seen)
		}
	}
	return nil
}

func (s *Scenario) step(ctx context.Context, d Driver, seen *History, words []string) error {
	switch words[0] {
	case "until":
		if len(words) > 2 && words[1] == "event" {
			return untilEvent(ctx, d, words[2:])
		}
		return until(ctx, seen, words[1:])
	case "delete":
		var grace *int64
		if len(words) > 1 {
			n, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				return err
			}
			grace = &n
		}
		return d.Delete(ctx, grace)
	case "gate":
		return d.Patch(ctx, "status", fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":%q}]}}`,
			words[1], words[2]))
	case "label":
		key, value, _ := strings.Cut(words[1], "=")
		return d.Patch(ctx, "", fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value))
	case "deadline":
		if len(words) != 2 {
			return fmt.Errorf("deadline SECONDS was expected")
		}
		return d.Patch(ctx, "", fmt.Appendf(nil, `{"spec":{"activeDeadlineSeconds":%s}}`, words[1]))
	case "resize":
		if len(words) < 3 {
			return fmt.Errorf("resize CONTAINER RESOURCE=AMOUNT... was expected")
		}
		return d.Patch(ctx, "resize", s.resize(words[1], words[2:]))
	case "refused":
		err := s.step(ctx, d, seen, words[1:])
		if err == nil {
			return errors.New("it was not refused")
		}
		if !strings.Contains(err.Error(), "forbidden") {
			return err
		}
		return nil
	case "debug":
		patch, err := debug(seen, words)
		if err != nil {
			return err
		}
		return d.Patch(ctx, "ephemeralcontainers", patch)
	case "pass":
		t, err := time.ParseDuration(words[1])
		if err != nil {
			return err
		}
		select {
		case <-time.After(t):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	case "config", "image", "now":
		return surroundingStep(ctx, d, words)
	default:
		return fmt.Errorf("no step is called %q", words[0])
	}
}

// until waits for what the words say.
func until(ctx context.Context, seen *History, words []string) error {
	want, err := wish(seen, words)
	if err != nil {
		return err
	}
	for {
		done, changed := seen.ask(want)
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("it did not come: %w", ctx.Err())
		}
	}
}

// untilEvent waits for an event with a reason, and the words after it in its message.
func untilEvent(ctx context.Context, d Driver, words []string) error {
	for {
		events, err := d.Events(ctx)
		if err != nil {
			return err
		}
		if oneHas(events, words) {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond): // nothing tells of events
		case <-ctx.Done():
			return fmt.Errorf("it did not come: %w; seen: %s", ctx.Err(), strings.Join(events, "; "))
		}
	}
}

func wish(seen *History, words []string) (func() bool, error) {
	last := words[len(words)-1]
	n, notNumber := strconv.Atoi(last)
	switch {
	case len(words) == 1 && words[0] == "gone":
		return func() bool { return seen.gone }, nil
	case len(words) == 1 && words[0] == "resized":
		return func() bool { return resized(seen.last()) }, nil
	case len(words) == 2 && words[0] == "phase":
		return func() bool { return string(seen.last().Status.Phase) == last }, nil
	case len(words) == 3 && words[0] == "condition":
		return func() bool {
			all := seen.condition(words[1])
			return len(all) > 0 && all[len(all)-1] == last
		}, nil
	case len(words) == 3 && words[0] == "state":
		return func() bool { return word(status(seen.last(), words[1]).State) == last }, nil
	case len(words) == 3 && words[0] == "restarts" && notNumber == nil:
		return func() bool { return int(status(seen.last(), words[1]).RestartCount) >= n }, nil
	case len(words) > 2 && words[0] == "message":
		return func() bool {
			w := status(seen.last(), words[1]).State.Waiting
			return w != nil && strings.Contains(w.Message, strings.Join(words[2:], " "))
		}, nil
	case len(words) == 2, len(words) == 3 && notNumber == nil:
		if len(words) == 2 {
			n = 1
		}
		return func() bool {
			count := 0
			for _, m := range seen.marksOf(words[0]) {
				if m == words[1] {
					count++
				}
			}
			return count >= n
		}, nil
	default:
		return nil, fmt.Errorf("it is not clear what to wait for: %s", strings.Join(words, " "))
	}
}

// late is how long marks and events may take to be seen after the API has said what they led to: the machine may be
// busy, and what is disturbed is tried again after a while.
const late = time.Minute

// becomes waits until a statement is true.
func (s *Scenario) becomes(ctx context.Context, d Driver, seen *History, line string) error {
	ctx, cancel := context.WithTimeout(ctx, late)
	defer cancel()
	for {
		err := s.check(ctx, d, seen, line)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond): // nothing tells of events
		case <-ctx.Done():
			return err
		}
	}
}

// check decides about one statement.
func (s *Scenario) check(ctx context.Context, d Driver, seen *History, line string) error {
	what, want, ok := strings.Cut(line, ":")
	about := strings.Fields(what)
	if !ok || len(about) == 0 || len(about) > 2 {
		return fmt.Errorf("a statement is WHAT [WHO]: WORDS")
	}
	who, words := about[len(about)-1], strings.Fields(want)
	var got []string
	exact := true
	events, err := d.Events(ctx)
	if err != nil {
		return err
	}
	answer, _ := seen.ask(func() bool {
		now := status(seen.last(), who)
		switch about[0] {
		case "marks", "begins":
			got = seen.marksOf(who)
			if slices.Contains(got, beside) {
				return false
			}
			if s.disturbed {
				if twice(got, seen.failedStarts(who)) {
					return false
				}
				got, words = calm(got), calm(words)
			}
			if about[0] == "begins" && len(got) > len(words) {
				got = got[:len(words)]
			}
		case "phases":
			got, exact = seen.phases(), false
		case "condition":
			got, exact = seen.condition(who), false
		case "restarts":
			got = []string{strconv.Itoa(int(now.RestartCount))}
		case "has":
			got = amounts(now)
		case "exit":
			if t := now.State.Terminated; t != nil {
				got = []string{strconv.Itoa(int(t.ExitCode)), t.Reason}
			}
		case "message":
			if t := now.State.Terminated; t != nil {
				got = strings.Fields(t.Message)
			}
		case "class":
			got = []string{string(seen.last().Status.QOSClass)}
		case "events":
			got = events
			return !slices.ContainsFunc(words, func(w string) bool { return !oneHas(events, []string{w}) })
		case "event":
			got = events
			return oneHas(events, append([]string{who}, words...))
		case "waited":
			got = seen.waited(who)
			return oneHas(got, words)
		case "ended":
			got = seen.ended(who)
			return oneHas(got, words)
		case "order":
			got = places(seen, words)
			return slices.IsSorted(order(seen, words)) && !slices.Contains(order(seen, words), -1)
		case "apart":
			var fits bool
			got, fits = s.apart(seen, words)
			return fits
		default:
			got = []string{"no statement is called " + about[0]}
			return false
		}
		if exact {
			return slices.Equal(got, words)
		}
		return len(got) > 0 && got[len(got)-1] == words[len(words)-1] && within(got, words)
	})
	if !answer {
		return fmt.Errorf("seen: %s", strings.Join(got, "; "))
	}
	return nil
}

// beside is the mark of a process that has found another one of its container.
const beside = "BESIDE"

// twice reports whether a container was started that had neither ended nor been told to. That many starts may have
// failed by the word of the runtime, which then kills without a signal before what it has started.
func twice(marks []string, failed int) bool {
	runs := false
	for _, m := range marks {
		switch {
		case m == "START" && runs:
			if failed--; failed < 0 {
				return true
			}
		case m == "START":
			runs = true
		case m == "TERM", strings.HasPrefix(m, "END("):
			runs = false
		}
	}
	return false
}

// calm leaves out what a server that has come back does anew: hooks, and TERM after TERM.
func calm(marks []string) []string {
	out := slices.DeleteFunc(slices.Clone(marks), func(m string) bool {
		return m != "START" && m != "TERM" && !strings.HasPrefix(m, "END(")
	})
	return slices.Compact(out)
}

// within reports whether the words of got come in this order among those of all.
func within(got, all []string) bool {
	for _, w := range all {
		if len(got) > 0 && got[0] == w {
			got = got[1:]
		}
	}
	return len(got) == 0
}

func order(seen *History, marks []string) []int {
	var out []int
	for _, m := range marks {
		out = append(out, seen.at(m))
	}
	return out
}

func places(seen *History, marks []string) []string {
	var out []string
	for i, at := range order(seen, marks) {
		out = append(out, fmt.Sprintf("%s at place %d,", marks[i], at))
	}
	return out
}

// apart decides about "a.MARK b.MARK >= 1s" and "<=".
func (s *Scenario) apart(seen *History, words []string) ([]string, bool) {
	if len(words) != 4 {
		return []string{"two marks, >= or <=, and a time were expected"}, false
	}
	a, b := seen.at(words[0]), seen.at(words[1])
	limit, err := time.ParseDuration(words[3])
	if a < 0 || b < 0 || err != nil {
		return places(seen, words[:2]), false
	}
	d := seen.marks[b].Time.Sub(seen.marks[a].Time)
	if words[2] == "<=" {
		return []string{d.String()}, d <= limit || !s.virtual
	}
	return []string{d.String()}, d >= limit
}
