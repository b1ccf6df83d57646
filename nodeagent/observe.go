package nodeagent

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/endmessage"
	"monoplane.dev/nodeagent/podstate"
)

func now() time.Time { return time.Now() }

func notFound(err error) bool { return status.Code(err) == codes.NotFound }

// observe returns all that the runtime has of one pod.
func (a *Agent) observe(ctx context.Context, uid string) (podstate.Observation, error) {
	all, err := a.observeAll(ctx, map[string]string{criconfig.LabelPodUID: uid})
	if err != nil || all[uid] == nil {
		return podstate.Observation{}, err
	}
	return all[uid].Observation, all[uid].unclear
}

// confirmMissing asks for what is there as far as the agent knows and is not in the lists: nothing is taken for gone,
// and started again, because one list lacked it.
func (a *Agent) confirmMissing(ctx context.Context, uid string, seen *podstate.Observation) error {
	w := a.worker(uid)
	if w == nil {
		return nil
	}
	var missing podstate.Observation
	w.look(func(m *podstate.StateMachine) { missing = m.Missing(seen) })
	for _, s := range missing.Sandboxes {
		got, err := a.sandbox(ctx, s.ID, uid)
		switch {
		case err == nil:
			seen.Sandboxes = append(seen.Sandboxes, got)
		case !notFound(err):
			return err
		}
	}
	for _, in := range missing.Instances {
		got, err := a.instance(ctx, in.ID, nil)
		switch {
		case err == nil:
			got.SandboxID = in.SandboxID
			seen.Instances = append(seen.Instances, got)
		case !notFound(err):
			return err
		}
	}
	return nil
}

// owns reports whether a sandbox or container with these labels is a pod's, and this agent's.
func (a *Agent) owns(labels map[string]string) bool {
	return labels[criconfig.LabelPodUID] != "" && (a.cfg.Owner == "" || labels[criconfig.LabelOwner] == a.cfg.Owner)
}

// local is what the runtime has of one pod.
type local struct {
	podstate.Observation

	namespace, name string
	// unclear says why the status of something could not be read. The observation then has what the lists say of it:
	// all that may run is there, but exits, times and addresses may be missing.
	unclear error
}

// listRuntime returns the containers and the sandboxes whose labels match. Containers are listed before sandboxes, so
// that a container's sandbox is in the answer unless it is gone.
func (a *Agent) listRuntime(
	ctx context.Context, labels map[string]string,
) ([]*runtimeapi.Container, []*runtimeapi.PodSandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	containers, err := a.cfg.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: labels},
	})
	if err != nil {
		return nil, nil, err
	}
	sandboxes, err := a.cfg.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels},
	})
	return containers.GetContainers(), sandboxes.GetItems(), err
}

// observeAll returns what the runtime has of all pods whose labels match, by uid. A pod whose statuses cannot be read
// does not keep it from telling about the others.
func (a *Agent) observeAll(ctx context.Context, labels map[string]string) (map[string]*local, error) {
	containers, sandboxes, err := a.listRuntime(ctx, labels)
	if err != nil {
		return nil, err
	}
	out := make(map[string]*local)
	entry := func(labels map[string]string) *local {
		uid := labels[criconfig.LabelPodUID]
		if out[uid] == nil {
			out[uid] = &local{namespace: labels[criconfig.LabelPodNamespace], name: labels[criconfig.LabelPodName]}
		}
		return out[uid]
	}
	for _, s := range sandboxes {
		if !a.owns(s.GetLabels()) {
			continue
		}
		e := entry(s.GetLabels())
		box := podstate.Sandbox{
			ID: s.GetId(), Attempt: s.GetMetadata().GetAttempt(), Ready: s.GetState() ==
				runtimeapi.PodSandboxState_SANDBOX_READY,
		}
		if box.Ready && e.unclear == nil { // only ready ones are asked for their addresses
			got, err := a.sandbox(ctx, s.GetId(), s.GetLabels()[criconfig.LabelPodUID])
			switch {
			case err == nil:
				box = got
			case notFound(err):
				continue
			default:
				e.unclear = err
			}
		}
		e.Sandboxes = append(e.Sandboxes, box)
	}
	for _, c := range containers {
		if !a.owns(c.GetLabels()) {
			continue
		}
		e := entry(c.GetLabels())
		in := listed(c)
		if e.unclear == nil {
			got, err := a.instance(ctx, c.GetId(), nil)
			switch {
			case err == nil && (got.Name != in.Name || got.Attempt != in.Attempt):
				return nil, fmt.Errorf("the container runtime lists container %s as %s, attempt %d, and says that it is %s, "+
					"attempt %d", in.ID, in.Name, in.Attempt, got.Name, got.Attempt)
			case err == nil:
				in = got
			case notFound(err):
				continue
			default:
				e.unclear = err // the others of this pod are not asked for either: it would take as long
			}
		}
		if e.unclear != nil && overtaken(c, containers) {
			continue
		}
		in.SandboxID = c.GetPodSandboxId()
		e.Instances = append(e.Instances, in)
	}
	maps.DeleteFunc(out, func(_ string, l *local) bool {
		return len(l.Sandboxes)+len(l.Instances) == 0 && l.unclear == nil // gone since the lists were made
	})
	return out, nil
}

// overtaken reports whether a container has ended and a newer instance of the same one is in the list.
func overtaken(c *runtimeapi.Container, all []*runtimeapi.Container) bool {
	return c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED &&
		slices.ContainsFunc(all, func(o *runtimeapi.Container) bool {
			return o.GetLabels()[criconfig.LabelPodUID] == c.GetLabels()[criconfig.LabelPodUID] &&
				o.GetMetadata().GetName() == c.GetMetadata().GetName() &&
				o.GetMetadata().GetAttempt() > c.GetMetadata().GetAttempt()
		})
}

// listed returns what a list says of a container whose status cannot be read. How it ended is not known then, so it
// counts as running until it is.
func listed(c *runtimeapi.Container) podstate.Instance {
	kept := criconfig.ParseInstance(c.GetAnnotations())
	in := podstate.Instance{
		ID: c.GetId(), Name: c.GetMetadata().GetName(), Attempt: c.GetMetadata().GetAttempt(), State: podstate.Running,
		Image: c.GetImage().GetImage(), ImageID: c.GetImageRef(), Hash: kept.Hash, Delay: kept.Delay,
	}
	if c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED {
		in.State = podstate.Created
	}
	return in
}

// sandbox asks for one sandbox, of the pod with a uid.
func (a *Agent) sandbox(ctx context.Context, id, uid string) (podstate.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	got, err := a.cfg.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return podstate.Sandbox{}, err
	}
	if of := got.GetStatus().GetMetadata().GetUid(); of != uid {
		return podstate.Sandbox{}, fmt.Errorf("the container runtime says that sandbox %s is of the pod with uid %q, not %q",
			id, of, uid)
	}
	return sandboxOf(got.GetStatus()), nil
}

func sandboxOf(s *runtimeapi.PodSandboxStatus) podstate.Sandbox {
	out := podstate.Sandbox{
		ID: s.GetId(), Attempt: s.GetMetadata().GetAttempt(),
		Ready: s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
	}
	if ip := s.GetNetwork().GetIp(); ip != "" {
		out.IPs = append(out.IPs, ip)
		for _, more := range s.GetNetwork().GetAdditionalIps() {
			out.IPs = append(out.IPs, more.GetIp())
		}
	}
	return out
}

// instance asks for one container. Info, if not nil, gets what the runtime says beyond the standard.
func (a *Agent) instance(ctx context.Context, id string, info func(map[string]string)) (podstate.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	got, err := a.cfg.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id,
		Verbose: info != nil})
	if err != nil {
		return podstate.Instance{}, err
	}
	if info != nil && len(got.GetInfo()) > 0 {
		info(got.GetInfo())
	}
	return a.instanceOf(got.GetStatus()), nil
}

func (a *Agent) instanceOf(s *runtimeapi.ContainerStatus) podstate.Instance {
	kept := criconfig.ParseInstance(s.GetAnnotations())
	in := podstate.Instance{
		ID: s.GetId(), Name: s.GetMetadata().GetName(), Attempt: s.GetMetadata().GetAttempt(),
		StartedAt: unixNano(s.GetStartedAt()), Image: s.GetImage().GetImage(), ImageID: s.GetImageRef(),
		Hash: kept.Hash, Delay: kept.Delay, Facts: factsOf(s),
	}
	if r := s.GetResources().GetLinux(); r != nil {
		in.Settings = &podstate.Settings{CPUShares: r.GetCpuShares(), CPUQuota: r.GetCpuQuota(),
			Memory: r.GetMemoryLimitInBytes()}
	}
	if user := s.GetImage().GetUserSpecifiedImage(); user != "" {
		in.Image = user
	}
	switch s.GetState() {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		in.State = podstate.Created
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		in.State, in.FinishedAt = podstate.Exited, unixNano(s.GetFinishedAt())
		in.Ordered = a.inOrder.covers(in.FinishedAt)
		in.ExitCode, in.Reason = s.GetExitCode(), bounded(s.GetReason())
		in.Message = a.terminationMessage(s)
	default: // what the runtime does not know may well run
		in.State, in.Unclear = podstate.Running, s.GetState() == runtimeapi.ContainerState_CONTAINER_UNKNOWN
	}
	return in
}

// factsOf returns what a runtime says of a container for its status in the API; nil for nothing.
func factsOf(s *runtimeapi.ContainerStatus) *podstate.Facts {
	var f podstate.Facts
	if signal := s.GetStopSignal(); signal != runtimeapi.Signal_RUNTIME_DEFAULT {
		f.StopSignal = strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(signal.String())
	}
	if u := s.GetUser().GetLinux(); u != nil {
		f.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{
			Uid: u.GetUid(), Gid: u.GetGid(), SupplementalGroups: u.GetSupplementalGroups(),
		}}
	}
	for _, at := range s.GetMounts() {
		if at.GetRecursiveReadOnly() {
			f.RecursiveReadOnly = append(f.RecursiveReadOnly, at.GetContainerPath())
		}
		if ref := at.GetImage().GetImage(); ref != "" {
			if f.Images == nil {
				f.Images = make(map[string]string)
			}
			f.Images[at.GetContainerPath()] = ref
		}
	}
	if f.StopSignal == "" && f.User == nil && f.RecursiveReadOnly == nil && f.Images == nil {
		return nil
	}
	return &f
}

func unixNano(n int64) time.Time {
	if n <= 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

// terminationMessage returns what a container that has ended says of that.
func (a *Agent) terminationMessage(s *runtimeapi.ContainerStatus) string {
	if a.cfg.PodLogDir == "" {
		return bounded(s.GetMessage())
	}
	return endmessage.Of(s, a.ownFile)
}

// ownFile reports whether a path that the runtime reports is below the directory of the pods' logs: nothing else
// is read on its word.
func (a *Agent) ownFile(path string) bool {
	rel, err := filepath.Rel(a.cfg.PodLogDir, path)
	return err == nil && filepath.IsLocal(rel)
}
