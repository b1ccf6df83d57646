package lifecycle

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Program is the command of containers, probes and hooks in manifests; it stands for the program act, wherever that
// lies.
const Program = "act"

// act is what a container, or a hook, does.
type act struct {
	run        time.Duration // negative: for ever
	code       int32
	ignoreTerm bool
	termAfter  time.Duration
	termCode   int32
	// shows are the variables and files whose content it marks, says what it prints.
	shows []string
	says  string
	// healthy from and until, since the start; until is 0 for no end.
	from, until time.Duration
	// users says that it marks how many there are.
	users bool
	// serves says that it listens at its port, from open until shut.
	serves     bool
	open, shut time.Duration
}

// termed is the exit code of a process that TERM has ended.
const termed = 143

func parseAct(args []string) (act, error) {
	a := act{run: -1, termCode: termed}
	for _, arg := range args {
		words := strings.Fields(arg)
		if err := a.add(words); err != nil {
			return act{}, fmt.Errorf("%q: %w", arg, err)
		}
	}
	return a, nil
}

func (a *act) add(words []string) error {
	usage := errors.New("run D, exit N, term D N, term ignore, stop SIGNAL, show WHAT, follow PATH, say TEXT, " +
		"leave TEXT, eat, healthy D [D], serve SERVED D D [grpc NAME], users, terminal, input, first or peer NAME " +
		"was expected")
	if len(words) < 1 {
		return usage
	}
	switch words[0] {
	case "say":
		a.says = strings.Join(words[1:], " ")
		return nil
	case "leave":
		return nil // nothing simulates it
	case "serve":
		return a.serve(words)
	}
	if len(words) > 3 {
		return usage
	}
	var times [2]time.Duration
	for i, w := range words[1:] {
		times[i], _ = time.ParseDuration(w)
	}
	number := func(w string) (int32, error) {
		n, err := strconv.ParseInt(w, 10, 32)
		return int32(n), err
	}
	var err error
	switch what := words[0]; {
	case what == "run" && len(words) == 2:
		a.run = times[0]
	case what == "exit" && len(words) == 2:
		a.code, err = number(words[1])
	case what == "term" && len(words) == 2 && words[1] == "ignore":
		a.ignoreTerm = true
	case what == "term" && len(words) == 3:
		a.termAfter = times[0]
		a.termCode, err = number(words[2])
	case what == "stop" && len(words) == 2:
		// The runtime says with what it stops a container.
	case what == "show" && len(words) == 2:
		a.shows = append(a.shows, words[1])
	case what == "users" && len(words) == 1:
		a.users = true
	case (what == "eat" || what == "terminal" || what == "input" || what == "first") && len(words) == 1,
		(what == "peer" || what == "follow") && len(words) == 2: // what only processes have
	case what == "healthy" && len(words) > 1:
		a.from, a.until = times[0], times[1]
	default:
		return usage
	}
	return err
}

func (a *act) serve(words []string) error {
	if byGRPC := len(words) == 6 && words[4] == "grpc"; len(words) != 4 && !byGRPC || words[1] != "SERVED" {
		return errors.New("serve SERVED D D [grpc NAME] was expected")
	}
	var err, err2 error
	a.serves = true
	a.open, err = time.ParseDuration(words[2])
	a.shut, err2 = time.ParseDuration(words[3])
	return errors.Join(err, err2)
}

// Serves reports whether a container has a server at all, and whether that listens when the container was started so
// long ago.
func (s *Scenario) Serves(container string, age time.Duration) (has, listens bool) {
	a := s.acts[container]
	return a.serves, age >= a.open && age < a.shut
}

// Healthy reports whether `act check` succeeds in a container that was started so long ago.
func (s *Scenario) Healthy(container string, age time.Duration) bool {
	a := s.acts[container]
	return age >= a.from && (a.until == 0 || age < a.until)
}

// Code returns what a container's process ends with by itself, or after TERM.
func (s *Scenario) Code(container string, termed bool) int32 {
	a := s.acts[container]
	if termed {
		return a.termCode
	}
	return a.code
}

// Variables returns the names of those that a container shows.
func (s *Scenario) Variables(container string) []string {
	var out []string
	for _, what := range s.acts[container].shows {
		if name, is := strings.CutPrefix(what, "$"); is {
			out = append(out, name)
		}
	}
	return out
}

// ShowsUsers reports whether a container marks how many users there are where it lives.
func (s *Scenario) ShowsUsers(container string) bool { return s.acts[container].users }

// Hook reads the command `act hook NAME [run 2s] [exit 1]`.
func Hook(command []string) (name string, run time.Duration, code int32, err error) {
	if len(command) < 3 || command[0] != Program || command[1] != "hook" {
		return "", 0, 0, fmt.Errorf("act hook NAME was expected, not %q", command)
	}
	a, err := parseAct(command[3:])
	return command[2], max(0, a.run), a.code, err
}

// Real returns the pod for runtimes with processes: program is the path of act and journal that of the file of marks,
// as containers see them.
func (s *Scenario) Real(image, program, journal string) *corev1.Pod {
	p := s.Pod.DeepCopy()
	c := Scenario{Pod: p}
	for _, x := range c.containers() {
		if x.Image == "" {
			x.Image = image
		}
		eachCommand(x, func(command []string) {
			if len(command) > 0 && command[0] == Program {
				command[0] = program
			}
		})
		x.Env = append(x.Env, corev1.EnvVar{Name: "ACT_JOURNAL", Value: journal},
			corev1.EnvVar{Name: "ACT_NAME", Value: x.Name})
	}
	return p
}

// eachCommand calls f with the commands of a container, its probes and its hooks.
func eachCommand(c *corev1.Container, f func(command []string)) {
	f(c.Command)
	for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		if p != nil && p.Exec != nil {
			f(p.Exec.Command)
		}
	}
	if c.Lifecycle == nil {
		return
	}
	for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
		if h != nil && h.Exec != nil {
			f(h.Exec.Command)
		}
	}
}

// Simulated returns the pod for the runtime `fake`, which is told by annotations what its containers do.
func (s *Scenario) Simulated() *corev1.Pod {
	p := s.Pod.DeepCopy()
	if p.Annotations == nil {
		p.Annotations = make(map[string]string)
	}
	sc := Scenario{Pod: p}
	for _, c := range sc.containers() {
		if c.Image == "" {
			c.Image = "act"
		}
	}
	for name, a := range s.acts {
		set := func(key string, value any) {
			p.Annotations["fake.monoplane.dev/"+key+"."+name] = fmt.Sprint(value)
		}
		if a.says != "" {
			set("log", a.says)
		}
		if a.run >= 0 {
			set("exit-after", a.run)
			set("exit-code", a.code)
		}
		if a.ignoreTerm {
			set("ignore-term", true)
			continue
		}
		set("stop-after", a.termAfter)
		set("stop-code", a.termCode)
	}
	return p
}
