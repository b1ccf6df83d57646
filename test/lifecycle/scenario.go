package lifecycle

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

//go:embed testdata/*.txt
var files embed.FS

// Scenario is one file.
type Scenario struct {
	// Name is the file's, Title its first line.
	Name, Title string
	// Pod is the manifest.
	Pod *corev1.Pod
	// acts are what the containers do, by name.
	acts map[string]act

	// NeedsRoot says that a machine must let its user do more than to run processes.
	NeedsRoot bool

	runtimes       []string
	script, expect []string
	disturbed      bool
	// virtual says that time passes as the scenario wants it, whatever the machine has to do besides.
	virtual bool
}

// badPrefix begins the names of the files of bad input.
const badPrefix = "bad-"

// onRuntimes begins the lines that are for some runtimes only.
const onRuntimes = "on "

// All returns the scenarios of a good life for a runtime, by name.
func All(runtime string) ([]*Scenario, error) {
	return choose(runtime, func(s *Scenario) bool { return !strings.HasPrefix(s.Name, badPrefix) })
}

// Bad returns the scenarios of bad input for a runtime, by name; an empty runtime stands for any.
func Bad(runtime string) ([]*Scenario, error) {
	return choose(runtime, func(s *Scenario) bool { return strings.HasPrefix(s.Name, badPrefix) })
}

func choose(runtime string, which func(*Scenario) bool) ([]*Scenario, error) {
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
		s, err := parse(strings.TrimSuffix(path.Base(name), ".txt"), text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if which(s) && (runtime == "" || len(s.runtimes) == 0 || slices.Contains(s.runtimes, runtime)) {
			s.virtual = runtime == "fake"
			if runtime != "" {
				s.script, s.expect = said(s.script, runtime), said(s.expect, runtime)
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// said returns the lines for a runtime: those that name no runtimes, or this one.
func said(all []string, runtime string) []string {
	var out []string
	for _, line := range all {
		if names, rest := forSome(line); names == nil || slices.Contains(names, runtime) {
			out = append(out, rest)
		}
	}
	return out
}

// forSome returns the runtimes that a line is for, and the rest of it; none if it is for all.
func forSome(line string) (names []string, rest string) {
	if some, is := strings.CutPrefix(line, onRuntimes); is {
		before, after, _ := strings.Cut(some, ": ")
		return append([]string{}, strings.Fields(before)...), after
	}
	return nil, line
}

func parse(name string, text []byte) (*Scenario, error) {
	s := &Scenario{Name: name, Pod: &corev1.Pod{}, acts: make(map[string]act)}
	head, rest, ok := bytes.Cut(text, []byte("\n-- pod --\n"))
	manifest, rest, ok2 := bytes.Cut(rest, []byte("\n-- script --\n"))
	script, expect, ok3 := bytes.Cut(rest, []byte("-- expect --\n"))
	if !ok || !ok2 || !ok3 {
		return nil, errors.New("the parts are: pod, script, expect")
	}
	for _, line := range lines(head) {
		switch list, is := strings.CutPrefix(line, "runtimes:"); {
		case is:
			s.runtimes = strings.Fields(list)
		case line == "needs: root":
			s.NeedsRoot = true
		default:
			s.Title = strings.TrimSpace(s.Title + " " + strings.TrimPrefix(line, "# "))
		}
	}
	manifest = bytes.ReplaceAll(manifest, []byte(wordOfSERVED), []byte(portOfSERVED))
	if err := yaml.UnmarshalStrict(manifest, s.Pod); err != nil {
		return nil, err
	}
	for _, c := range s.containers() {
		a, err := parseAct(c.Args)
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", c.Name, err)
		}
		s.acts[c.Name] = a
	}
	s.script, s.expect = lines(script), lines(expect)
	for _, line := range slices.Concat(s.script, s.expect) {
		names, rest := forSome(line)
		if unknown := func(name string) bool { return !slices.Contains(s.runtimes, name) }; rest == "" ||
			slices.ContainsFunc(names, unknown) {
			return nil, fmt.Errorf("%s: a line for some runtimes is: on SOME OF ITS RUNTIMES: LINE", line)
		}
	}
	for _, line := range s.script {
		if words := strings.Fields(line); words[0] == "debug" {
			d, err := parseDebug(words)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", line, err)
			}
			if s.acts[d.name], err = parseAct(d.args); err != nil {
				return nil, fmt.Errorf("%s: %w", line, err)
			}
		}
	}
	if s.Title == "" || len(s.expect) == 0 {
		return nil, errors.New("a title and expectations are missing")
	}
	return s, nil
}

// Lasts returns how much time the scenario lets pass by its own words, which is not all that it takes.
func (s *Scenario) Lasts() time.Duration {
	var passes, most time.Duration
	for _, line := range s.script {
		if words := strings.Fields(line); words[0] == "pass" {
			d, _ := time.ParseDuration(words[1]) // what is none fails when it is played
			passes += d
		}
	}
	for _, line := range s.expect {
		if about, limit, is := strings.Cut(line, " >= "); is && strings.HasPrefix(about, "apart:") {
			d, _ := time.ParseDuration(limit)
			most = max(most, d)
		}
	}
	if d := s.Pod.Spec.ActiveDeadlineSeconds; d != nil && !slices.ContainsFunc(s.script, shortens) {
		most = max(most, time.Duration(*d)*time.Second)
	}
	return max(most, passes)
}

// shortens reports whether a step gives the pod another deadline.
func shortens(step string) bool { return strings.HasPrefix(step, "deadline ") }

// Disturbed returns the scenario with those of its statements that hold also when the server dies on the way and comes
// back: it may tell twice, and sends its signals and runs its hooks anew, but it starts nothing twice. The last that
// was seen of a pod that is gone need not be the last that was said of it.
func (s *Scenario) Disturbed() *Scenario {
	out := *s
	out.disturbed, out.expect = true, nil
	goes := slices.Contains(s.script, "until gone")
	for _, line := range s.expect {
		what, _, _ := strings.Cut(line, ":")
		switch word := strings.Fields(what)[0]; {
		case word == "marks" || word == "begins" || word == "order",
			!goes && (word == "phases" || word == "exit" || word == "restarts"):
			out.expect = append(out.expect, line)
		}
	}
	return &out
}

// CutOff returns the scenario with those of its statements that hold also when the runtime dies on the way; ok is
// false where none do. A start that is cut off may have failed, by the runtime's word, which ends what does not run
// again by policy, as an ephemeral container never does, a hook after the start that is cut off kills the container,
// and a deadline passes meanwhile.
func (s *Scenario) CutOff() (out *Scenario, ok bool) {
	if s.Pod.Spec.RestartPolicy != "" && s.Pod.Spec.RestartPolicy != corev1.RestartPolicyAlways ||
		s.Pod.Spec.ActiveDeadlineSeconds != nil ||
		slices.ContainsFunc(s.script, func(line string) bool { return strings.HasPrefix(line, "debug ") }) {
		return nil, false
	}
	for _, c := range s.containers() {
		if c.RestartPolicy != nil && *c.RestartPolicy != corev1.ContainerRestartPolicyAlways ||
			c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
			return nil, false
		}
	}
	d := *s
	d.disturbed, d.expect = true, nil
	for _, line := range s.expect {
		if strings.HasPrefix(line, "marks ") || strings.HasPrefix(line, "begins ") {
			d.expect = append(d.expect, line)
		}
	}
	return &d, len(d.expect) > 0
}

// containers returns pointers to all containers of the manifest.
func (s *Scenario) containers() []*corev1.Container {
	var out []*corev1.Container
	for _, list := range [][]corev1.Container{s.Pod.Spec.InitContainers, s.Pod.Spec.Containers} {
		for i := range list {
			out = append(out, &list[i])
		}
	}
	return out
}

func lines(text []byte) []string {
	var out []string
	for line := range strings.SplitSeq(string(text), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}
