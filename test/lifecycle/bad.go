package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Surroundings is what a scenario of bad input changes besides its pod.
type Surroundings interface {
	Driver
	// Config creates or replaces a ConfigMap.
	Config(ctx context.Context, name string, data map[string]string) error
	// Image gives a container of the pod another image; empty for one that is good.
	Image(ctx context.Context, container, image string) error
	// Now changes the world as a line of Changes says.
	Now(ctx context.Context, what string) error
}

// Changes are what `now` can be followed by, and what it means.
var Changes = map[string]string{ //nolint:gochecknoglobals // a table that is never written
	"the program is there":       "SEEN/late is a copy of act",
	"the directory is there":     "PLACE/late is a directory",
	"the link is a directory":    "PLACE/escape, a link to /etc before, is a directory",
	"the registry answers":       "REGISTRY serves its images",
	"the password is wrong":      "the Secret pull has a wrong password for PRIVATE",
	"the password is right":      "the Secret pull has the right password for PRIVATE",
	"the port is open":           "somebody listens at CLOSED",
	"the server comes to an end": "what answers at ENDLESS ends its answers",
	"the sandbox is lost":        "what holds the pod's containers together is stopped, and they with it",
	"the hunger is over":         "PLACE/hungry, for which `eat` looks, is gone",
}

// Placeholders are the words that a manifest may have in place of what differs from runtime to runtime.
type Placeholders struct {
	// Place is a directory on the machine, Seen the same one as containers see it.
	Place, Seen string
	// Registry and Private are the hosts of registries; the second wants a password.
	Registry, Private string
	// Closed and Endless are ports of 127.0.0.1: at the first nobody listens, at the second answers never end.
	Closed, Endless int
	// Served is the port at which a container listens that serves.
	Served int
}

// SERVED stands in a gRPC probe, whose port must be a number, for the port at which a container serves. A file has the
// word all the same.
const (
	wordOfSERVED   = "grpc: {port: SERVED"
	portOfSERVED   = "grpc: {port: 65535"
	numberOfSERVED = `"grpc":{"port":65535`
)

func (p Placeholders) fill(pod *corev1.Pod) (*corev1.Pod, error) {
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	filled := strings.NewReplacer("PLACE/", p.Place+"/", "PLACE\"", p.Place+"\"", "SEEN/", p.Seen+"/",
		"REGISTRY/", p.Registry+"/", "PRIVATE/", p.Private+"/", `"CLOSED"`, strconv.Itoa(p.Closed),
		`"ENDLESS"`, strconv.Itoa(p.Endless), `"SERVED"`, strconv.Itoa(p.Served), numberOfSERVED,
		`"grpc":{"port":`+strconv.Itoa(p.Served), "serve SERVED ",
		fmt.Sprintf("serve %d ", p.Served)).Replace(string(text))
	out := &corev1.Pod{}
	return out, json.Unmarshal([]byte(filled), out)
}

// Filled returns the scenario with its placeholders filled.
func (s *Scenario) Filled(p Placeholders) (*Scenario, error) {
	pod, err := p.fill(s.Pod)
	out := *s
	out.Pod = pod
	return &out, err
}

// NeighbourName is the name of the neighbour's container.
const NeighbourName = "neighbour"

// Neighbour returns a pod that runs beside a scenario of bad input, on the same node, as a scenario of its own, which
// is played before and after: the pod is ready all the time, with its first instance.
func (s *Scenario) Neighbour() *Scenario {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: NeighbourName, Command: []string{Program}, ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{Program, "check"}}},
			// A machine that is busy with the scenario is not what is tried here.
			PeriodSeconds: 1, TimeoutSeconds: 60, FailureThreshold: 3,
		},
	}}}}
	alive, _ := parseAct(nil) // no words cannot be wrong
	return &Scenario{
		Name: s.Name + "-" + NeighbourName, Title: "the neighbour of " + s.Name, Pod: pod,
		acts:   map[string]act{NeighbourName: alive},
		script: []string{"until condition Ready True"},
		expect: []string{"condition Ready: False True", "restarts " + NeighbourName + ": 0",
			"marks " + NeighbourName + ": START"},
	}
}

// surroundingStep carries out a step that changes what surrounds the pod.
func surroundingStep(ctx context.Context, d Driver, words []string) error {
	s, can := d.(Surroundings)
	if !can {
		return errors.New("this driver cannot change what surrounds the pod")
	}
	switch words[0] {
	case "config":
		data := make(map[string]string)
		for _, pair := range words[2:] {
			key, value, _ := strings.Cut(pair, "=")
			data[key] = value
		}
		return s.Config(ctx, words[1], data)
	case "image":
		return s.Image(ctx, words[1], strings.Join(words[2:], ""))
	default:
		what := strings.Join(words[1:], " ")
		if _, known := Changes[what]; !known {
			return fmt.Errorf("no change is called %q", what)
		}
		return s.Now(ctx, what)
	}
}

// waited returns what a container has waited for, each as its reason and message.
func (h *History) waited(container string) []string {
	var out []string
	for _, p := range h.pods {
		if w := status(p, container).State.Waiting; w != nil {
			out = append(out, w.Reason+" "+w.Message)
		}
	}
	return slices.Compact(out)
}

// ended returns how a container has ended, each time as its reason, exit code and message.
func (h *History) ended(container string) []string {
	var out []string
	for _, p := range h.pods {
		s := status(p, container)
		for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if t != nil {
				out = append(out, fmt.Sprint(t.Reason, " ", t.ExitCode, " ", t.Message))
			}
		}
	}
	return slices.Compact(out)
}

// oneHas reports whether one of the texts begins with the first of the words and has the rest of them in it.
func oneHas(texts, words []string) bool {
	rest := strings.Join(words[1:], " ")
	return slices.ContainsFunc(texts, func(t string) bool {
		reason, said, _ := strings.Cut(t, " ")
		return reason == words[0] && strings.Contains(said, rest)
	})
}
