package podstate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// model is the world around one StateMachine, as simple as it can be: an API object and a runtime.
type model struct {
	host  *Host
	m     *StateMachine
	now   time.Time
	began time.Time
	wake  time.Time

	pod *corev1.Pod // in the API, nil when it is gone
	rv  int

	boxes     []Sandbox
	instances []Instance
	nextID    int
	// queued holds, by container id, until when the runtime may take up a start that it has not answered.
	queued map[string]time.Time
	// ghosts are containers that the runtime runs although nobody asked for it; true once a look has shown them.
	ghosts map[string]bool

	// with are the objects by whose resources the newest instances are started, by place; amounts what instances have,
	// by id; and kept what the node has kept of a grant.
	with    map[int]*corev1.Pod
	amounts map[string]*corev1.ResourceRequirements
	kept    *corev1.Pod

	// asked is what the runtime had when the last look was asked for.
	asked Observation
	// pending are the actions that want an answer, oldest first.
	pending []Action
	// answered collects the actions of the last step.
	last []Action

	phases    []string // of every accepted write
	cancelled bool
}

func newModel(policy string, grace int64, containers []string, inits []string) *model {
	p := DefaultPolicy()
	began := time.Unix(1_000_000_000, 0)
	w := &model{
		host: &Host{Policy: p, IPs: func() []string { return []string{"10.0.0.1"} }, Runtime: "test"},
		now:  began, began: began, rv: 1,
		queued: map[string]time.Time{}, ghosts: map[string]bool{}, with: map[int]*corev1.Pod{},
		amounts: map[string]*corev1.ResourceRequirements{},
	}
	w.pod = &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "p", Uid: "u", ResourceVersion: "1", Generation: 1},
		Spec:     &corev1.PodSpec{RestartPolicy: policy, TerminationGracePeriodSeconds: proto.Int64(grace)},
		Status:   &corev1.PodStatus{Phase: "Pending"},
	}
	for _, n := range containers {
		w.pod.Spec.Containers = append(w.pod.Spec.Containers, &corev1.Container{Name: n, Image: "host"})
	}
	for _, n := range inits {
		c := &corev1.Container{Name: strings.TrimSuffix(n, "*"), Image: "host"}
		if strings.HasSuffix(n, "*") {
			c.RestartPolicy = proto.String("Always")
		}
		w.pod.Spec.InitContainers = append(w.pod.Spec.InitContainers, c)
	}
	return w
}

// container returns the definition of the named container.
func (w *model) container(name string) *corev1.Container {
	for _, list := range [][]*corev1.Container{w.pod.Spec.InitContainers, w.pod.Spec.Containers} {
		for _, c := range list {
			if c.GetName() == name {
				return c
			}
		}
	}
	return nil
}

// agentStarts makes a new machine from what there is, as a restarted agent does.
func (w *model) agentStarts() {
	w.pending, w.wake, w.cancelled = nil, time.Time{}, false
	w.m = New(w.host, w.pod, w.seen(), w.now)
	if w.kept != nil {
		w.m.Restore(w.kept)
	}
	w.step(Start{})
}

// step gives the machine a fact and takes its actions.
func (w *model) step(in Input) {
	actions := w.m.Step(w.now, in)
	for _, a := range actions {
		switch a := a.(type) {
		case Wake:
			w.wake = a.At
		case CancelStart:
			w.cancelled = true
		case Note, Forget, CancelHook:
		case Observe:
			w.asked = w.seen()
			w.pending = append(w.pending, a)
		case StartContainer:
			w.with[a.Index] = w.m.Granted()
			w.pending = append(w.pending, a)
		default:
			w.pending = append(w.pending, a)
		}
	}
	w.last = append(w.last, actions...)
}

// change edits the object in the API and tells the machine.
func (w *model) change(f func(p *corev1.Pod)) {
	p := proto.CloneOf(w.pod)
	f(p)
	w.rv++
	p.Metadata.ResourceVersion = strconv.Itoa(w.rv)
	w.pod = p
	w.step(Changed{Pod: p})
}

// markDeleted begins or shortens a graceful deletion.
func (w *model) markDeleted(grace int64) {
	w.change(func(p *corev1.Pod) {
		p.Metadata.DeletionTimestamp = apiTime(w.now.Add(time.Duration(grace) * time.Second))
		p.Metadata.DeletionGracePeriodSeconds = proto.Int64(grace)
	})
}

// take removes the first pending action of type A that fits and returns it.
func take[A Action](w *model, fits func(A) bool) (A, bool) {
	for i, a := range w.pending {
		if x, ok := a.(A); ok && (fits == nil || fits(x)) {
			w.pending = slices.Delete(w.pending, i, i+1)
			return x, true
		}
	}
	var none A
	return none, false
}

func (w *model) seen() Observation {
	seen := Observation{Sandboxes: slices.Clone(w.boxes), Instances: slices.Clone(w.instances)}
	for i := range seen.Instances {
		seen.Instances[i].Settings = w.settings(seen.Instances[i].ID)
	}
	return seen
}

// settings are what the runtime says that an instance may use.
func (w *model) settings(id string) *Settings {
	n, _ := strconv.ParseInt(w.amounts[id].GetRequests()["cpu"].GetString_(), 10, 64)
	return &Settings{CPUShares: n}
}

func (w *model) id() string {
	w.nextID++
	return fmt.Sprintf("c%d", w.nextID)
}

func (w *model) runSandbox(a RunSandbox) Sandbox {
	s := Sandbox{ID: fmt.Sprintf("s%d", a.Attempt), Attempt: a.Attempt, Ready: true, IPs: []string{"10.1.0.1"}}
	w.boxes = append(w.boxes, s)
	return s
}

// createContainer makes the container in the runtime.
func (w *model) createContainer(a StartContainer) Instance {
	spec := ContainerAt(w.pod, a.Index)
	in := Instance{
		ID: w.id(), Name: spec.GetName(), SandboxID: a.SandboxID, Attempt: a.Attempt, State: Created,
		Hash: HashAt(w.with[a.Index], a.Index), Delay: a.Delay, Image: spec.GetImage(),
	}
	w.amounts[in.ID] = ContainerAt(w.with[a.Index], a.Index).GetResources()
	w.instances = append(w.instances, in)
	return in
}

// startContainer makes the container run in the runtime.
func (w *model) startContainer(a StartContainer) Instance {
	w.createContainer(a)
	in := &w.instances[len(w.instances)-1]
	in.State, in.StartedAt = Running, w.now
	return *in
}

// queue makes a container whose start the runtime may take up later, but not after the expiry.
func (w *model) queue(a StartContainer, expiry time.Time) Instance {
	in := w.createContainer(a)
	w.queued[in.ID] = expiry
	return in
}

// mayStart reports whether the runtime may yet take up the start of a container.
func (w *model) mayStart(in *Instance) bool {
	return in.State == Created && w.now.Before(w.queued[in.ID]) &&
		slices.ContainsFunc(w.boxes, func(s Sandbox) bool { return s.ID == in.SandboxID && s.Ready })
}

// takeUp makes the runtime take up a start that was queued; it reports whether there was one.
func (w *model) takeUp(in *Instance) bool {
	if !w.mayStart(in) {
		return false
	}
	in.State, in.StartedAt = Running, w.now
	return true
}

// haunt makes the runtime run something that nobody asked for.
func (w *model) haunt(name, sandbox string, attempt uint32) {
	in := Instance{ID: w.id(), Name: name, SandboxID: sandbox, Attempt: attempt, State: Running, StartedAt: w.now,
		Image: "host"}
	w.instances = append(w.instances, in)
	w.ghosts[in.ID] = false
}

// lose makes the runtime lose sight of a container that runs, or of one whose start it may have taken up.
func (w *model) lose(name string) {
	for i := range w.instances {
		if in := &w.instances[i]; in.Name == name && (in.State == Running || in.State == Created) {
			in.State, in.Unclear = Running, true
			delete(w.queued, in.ID)
		}
	}
}

// exit ends a container in the runtime.
func (w *model) exit(id string, code int32) Instance {
	for i := range w.instances {
		if in := &w.instances[i]; in.ID == id {
			if in.State == Running {
				in.State, in.ExitCode, in.FinishedAt, in.Unclear = Exited, code, w.now, false
			}
			return *in
		}
	}
	return Instance{}
}

// stopSandbox ends a sandbox and all in it.
func (w *model) stopSandbox(id string) {
	for i := range w.boxes {
		if w.boxes[i].ID == id {
			w.boxes[i].Ready = false
		}
	}
	for _, in := range w.instances {
		if in.SandboxID == id {
			w.exit(in.ID, 137)
		}
	}
}

func (w *model) removeContainer(id string) {
	w.instances = slices.DeleteFunc(w.instances, func(in Instance) bool { return in.ID == id })
}

func (w *model) removeAll() { w.boxes, w.instances = nil, nil }

// write stores a status as the API does.
func (w *model) write(a WriteStatus) StatusWritten {
	if w.pod == nil {
		return StatusWritten{Outcome: Conflict}
	}
	if a.Pod.GetMetadata().GetResourceVersion() != w.pod.GetMetadata().GetResourceVersion() {
		return StatusWritten{Outcome: Conflict}
	}
	p := proto.CloneOf(w.pod)
	p.Status = a.Pod.GetStatus()
	w.rv++
	p.Metadata.ResourceVersion = strconv.Itoa(w.rv)
	w.pod = p
	w.phases = append(w.phases, p.GetStatus().GetPhase())
	return StatusWritten{Pod: p}
}

// resize has a container, or with no name the pod as a whole, ask for so much of the processors.
func (w *model) resize(name, cpu string) {
	w.change(func(p *corev1.Pod) {
		p.Metadata.Generation++
		asks := &corev1.ResourceRequirements{Requests: map[string]*metav1.Quantity{"cpu": {String_: cpu}}}
		for _, list := range [][]*corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for _, c := range list {
				if c.GetName() == name {
					c.Resources = asks
				}
			}
		}
		if name == "" {
			p.Spec.Resources = asks
		}
	})
}

// grant keeps what a pod asks for.
func (w *model) grant(a AskResize) ResizeDecided {
	w.kept = a.Pod
	return ResizeDecided{Serial: a.Serial, Pod: a.Pod, Granted: true}
}

// actuate gives containers what they are to have, all of them or but for the last ones.
func (w *model) actuate(a Actuate, fails string, but int) Actuated {
	out := Actuated{Serial: a.Serial, Err: fails, Group: fails == "", Done: map[string]*Settings{}}
	for _, t := range a.Targets[:len(a.Targets)-but] {
		w.amounts[t.ID] = ContainerAt(a.To, t.Index).GetResources()
		out.Done[t.ID] = w.settings(t.ID)
	}
	return out
}

// instance returns what the runtime has by that id, nil for nothing.
func (w *model) instance(id string) *Instance {
	for i := range w.instances {
		if w.instances[i].ID == id {
			return &w.instances[i]
		}
	}
	return nil
}

// running returns the running instance of a container, "" for any.
func (w *model) running(name string) (Instance, bool) {
	for _, in := range w.instances {
		if in.State == Running && (name == "" || in.Name == name) {
			return in, true
		}
	}
	return Instance{}, false
}

func (w *model) anyReady() bool {
	return slices.ContainsFunc(w.boxes, func(s Sandbox) bool { return s.Ready })
}
