package workloads

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed testdata/*.txt
var files embed.FS

// Scenario is one file.
type Scenario struct {
	// Name is the file's, Title its first line.
	Name, Title string
	// Nodes is how many simulated nodes it wants.
	Nodes int
	// Large says that it takes minutes.
	Large bool
	// Manifests are its objects, in YAML.
	Manifests string

	head   string // the text before the script
	on     []string
	bounds []bound
	steps  []*step
}

// bound is what always holds of the pods of an app.
type bound struct {
	text     string
	ready    bool // of those that are ready
	app      string
	min, max int
}

// step is what is done, and what is to be seen then.
type step struct {
	text string // as it is in the file
	do   []string
	// takes is how long it takes; 0: until nothing changes.
	takes   time.Duration
	endOnly bool
	want    []string
}

// All returns the scenarios for fake or host, by name.
func All(on string) ([]*Scenario, error) {
	names, err := fs.Glob(files, "testdata/*.txt")
	if err != nil {
		return nil, err
	}
	var out []*Scenario
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		s, err := parse(strings.TrimSuffix(path.Base(name), ".txt"), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if slices.Contains(s.on, on) {
			out = append(out, s)
		}
	}
	return out, nil
}

// The lines that part a file.
const (
	objectsMark = "\n-- objects --\n"
	scriptMark  = "\n-- script --\n"
)

func parse(name, text string) (*Scenario, error) {
	s := &Scenario{Name: name, Nodes: 1, on: []string{"fake"}}
	head, script, ok := strings.Cut(text, scriptMark)
	about, manifests, ok2 := strings.Cut(head, objectsMark)
	if !ok || !ok2 {
		return nil, errors.New("the parts are: objects, script")
	}
	s.head, s.Manifests = head+scriptMark, manifests
	for line := range strings.Lines(about) {
		if err := s.parseHead(strings.TrimSpace(line)); err != nil {
			return nil, fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
		}
	}
	for line := range strings.Lines(script) {
		switch {
		case strings.TrimSpace(line) == "":
		case !strings.HasPrefix(line, " "):
			next, err := parseStep(strings.TrimSpace(line))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
			}
			s.steps = append(s.steps, next)
		case len(s.steps) == 0:
			return nil, errors.New("a timeline without a step")
		default:
			last := s.steps[len(s.steps)-1]
			last.want = append(last.want, tidy(line))
		}
	}
	if s.Title == "" || len(s.steps) == 0 {
		return nil, errors.New("a title and steps are missing")
	}
	return s, nil
}

func (s *Scenario) parseHead(line string) error {
	what, rest, _ := strings.Cut(line, " ")
	var err error
	switch what {
	case "#":
		s.Title = strings.TrimSpace(s.Title + " " + rest)
	case "nodes:":
		s.Nodes, err = strconv.Atoi(rest)
	case "large":
		s.Large = true
	case "on:":
		s.on = strings.Fields(rest)
	case "always:":
		b := bound{text: rest}
		var limits, kind string
		if _, err := fmt.Sscanf(rest, "%s %s of %s", &limits, &kind, &b.app); err != nil {
			return fmt.Errorf("not MIN..MAX pods|ready of APP: %w", err)
		}
		b.ready = kind == "ready"
		low, high, _ := strings.Cut(limits, "..")
		if b.min, err = strconv.Atoi(low); err == nil && high != "" {
			b.max, err = strconv.Atoi(high)
		}
		s.bounds = append(s.bounds, b)
	default:
		err = errors.New("nothing that the head of a scenario says")
	}
	return err
}

func parseStep(text string) (*step, error) {
	out := &step{text: text}
	if inner, rest, ok := strings.Cut(strings.TrimPrefix(text, "["), "] "); ok && strings.HasPrefix(text, "[") {
		takes, end := strings.CutSuffix(inner, ", end")
		var err error
		if out.takes, err = time.ParseDuration(takes); err != nil {
			return nil, err
		}
		out.endOnly, text = end, rest
	}
	out.do = words(text)
	return out, nil
}

// words splits a line at spaces; single quotes group, without escapes.
func words(line string) []string {
	var out []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}

// tidy makes of any white space one space.
func tidy(line string) string { return strings.Join(strings.Fields(line), " ") }
