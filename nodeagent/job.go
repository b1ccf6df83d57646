package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/podlog"
	"monoplane.dev/nodeagent/podstate"
)

// Deadlines of calls. One to the runtime that makes or removes something gets runtimeTimeout, what brings up or takes
// down a network sandboxTimeout, and a stop stopMargin on top of its grace period. A list gets listTimeout and the
// status of one thing lookTimeout: a runtime answers these from memory. The runtime takes up a start within
// startTimeout or never. When the connection breaks meanwhile, most likely because the runtime dies, the container
// gets lostTimeout to be seen to run; then it is removed, after which it cannot start, and another is made.
const (
	runtimeTimeout = 2 * time.Minute
	sandboxTimeout = 4 * time.Minute
	startTimeout   = 2 * time.Minute
	lostTimeout    = 10 * time.Second
	pullTimeout    = time.Hour
	stopMargin     = 30 * time.Second
	listTimeout    = 30 * time.Second
	lookTimeout    = 10 * time.Second
	apiTimeout     = 30 * time.Second
)

// job carries out an action for one pod.
type job struct {
	agent  *Agent
	pod    *corev1.Pod
	podIPs []string
	static *staticPod // nil for a pod of the API
}

func (j job) do(ctx context.Context, action podstate.Action) podstate.Input {
	switch action := action.(type) {
	case podstate.Admit:
		return j.agent.admit(ctx, j.pod, j.static != nil)
	case podstate.StopContainer:
		return j.stopContainer(ctx, action)
	case podstate.Actuate:
		return j.actuate(ctx, action)
	case podstate.StopSandbox:
		return podstate.SandboxStopped{ID: action.ID, Err: text(j.stopSandbox(ctx, action.ID))}
	case podstate.Observe:
		seen, err := j.agent.observe(ctx, uidOf(j.pod))
		if err == nil {
			err = j.agent.confirmMissing(ctx, uidOf(j.pod), &seen)
		}
		return podstate.Observed{Seen: seen, Asked: true, Err: text(err)}
	case podstate.RemoveContainer:
		return podstate.ContainerRemoved{ID: action.ID, Err: text(j.removeContainer(ctx, action))}
	case podstate.Remove:
		err := j.remove(ctx, action)
		if err != nil {
			j.warn(ctx, "what a pod had on the node cannot be removed", err)
		}
		return podstate.Removed{Err: text(err)}
	case podstate.WriteStatus:
		return j.writeStatus(ctx, action.Pod)
	case podstate.Lookup:
		return j.lookup(ctx)
	case podstate.DeletePod:
		return j.deletePod(ctx)
	default:
		return podstate.Poke{}
	}
}

// text returns what a user should read of an error of the runtime; empty for nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	if s, ok := status.FromError(err); ok && s.Message() != "" {
		return bounded(s.Message())
	}
	return bounded(err.Error())
}

// maxSaid bounds what is passed on of the runtime's words, in bytes.
const maxSaid = 4096

// bounded returns the beginning of what the runtime says: a status with more could never be written.
func bounded(said string) string {
	if len(said) > maxSaid {
		said = said[:maxSaid]
	}
	return strings.ToValidUTF8(said, "?")
}

func (j job) podDir() string {
	if j.agent.cfg.PodLogDir == "" {
		return ""
	}
	meta := j.pod.GetMetadata()
	return filepath.Join(j.agent.cfg.PodLogDir, criconfig.PodDir(meta.GetNamespace(), meta.GetName(), meta.GetUid()))
}

// homeDir returns the directory of what the agent keeps for the pod besides its logs; empty on a simulated machine.
func (j job) homeDir() string {
	if j.agent.cfg.PodsDir == "" {
		return ""
	}
	return filepath.Join(j.agent.cfg.PodsDir, uidOf(j.pod))
}

func (j job) facts() criconfig.Facts {
	m := &j.agent.cfg.Machine
	return criconfig.Facts{
		HostIPs: j.agent.addresses(), PodIPs: j.podIPs, NodeHostname: m.Hostname, Owner: j.agent.cfg.Owner,
		CgroupParent: j.cgroupParent(), Node: &j.agent.criNode,
	}
}

// runSandbox makes a sandbox; it is given up a while after the context wanted has ended.
func (j job) runSandbox(ctx, wanted context.Context, action podstate.RunSandbox) podstate.Input {
	if err := j.setUpVolumes(wanted); err != nil {
		return podstate.SandboxRun{Err: text(err), Unmounted: true}
	}
	ctx, done := outlast(ctx, wanted)
	defer done()
	ctx, cancel := context.WithTimeout(ctx, sandboxTimeout)
	defer cancel()
	if dir := j.podDir(); dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return podstate.SandboxRun{Err: err.Error(), Invalid: hopeless(err)}
		}
	}
	handler, err := j.handler(ctx)
	if err != nil {
		return podstate.SandboxRun{Err: text(err)}
	}
	if err := j.canHaveUsers(handler); err != nil {
		return podstate.SandboxRun{Err: text(err)}
	}
	cfg, left, err := j.sandboxConfig(action.Attempt)
	if err != nil {
		return podstate.SandboxRun{Err: text(err)}
	}
	for _, what := range left {
		j.agent.cfg.Recorder.Event(j.pod, record.Warning, "DNSConfigForming", "Starting", what)
	}
	unlimited := j.prepareGroup()
	run, err := j.agent.cfg.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: cfg,
		RuntimeHandler: handler})
	if err != nil {
		return podstate.SandboxRun{Err: text(err), Invalid: hopeless(err)}
	}
	j.settleGroup(ctx, run.GetPodSandboxId(), unlimited)
	box, err := j.agent.sandbox(ctx, run.GetPodSandboxId(), uidOf(j.pod))
	if err != nil {
		return podstate.SandboxRun{Err: text(err)}
	}
	return podstate.SandboxRun{Sandbox: box}
}

// handler returns the runtime's name for how the pod is to be run; empty for the usual way.
func (j job) handler(ctx context.Context) (string, error) {
	name := j.pod.GetSpec().GetRuntimeClassName()
	if name == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	class, err := j.agent.cfg.Client.RuntimeClasses.Get(ctx, &metav1.GetRequest{Name: name})
	if err != nil {
		return "", fmt.Errorf("get runtime class %q: %w", name, err)
	}
	return class.GetHandler(), nil
}

func (j job) stopContainer(ctx context.Context, action podstate.StopContainer) podstate.Input {
	stop, cancel := context.WithTimeout(ctx, action.Timeout+stopMargin)
	defer cancel()
	_, err := j.agent.cfg.Runtime.StopContainer(stop, &runtimeapi.StopContainerRequest{
		ContainerId: action.ID, Timeout: int64(action.Timeout / time.Second),
	})
	if err != nil && !notFound(err) {
		return podstate.ContainerStopped{ID: action.ID, Err: text(err)}
	}
	in, err := j.agent.instance(ctx, action.ID, nil)
	if err != nil && !notFound(err) {
		return podstate.ContainerStopped{ID: action.ID, Err: text(err)}
	}
	if in.State == podstate.Running {
		return podstate.ContainerStopped{ID: action.ID, Err: "the container still runs after it was stopped"}
	}
	return podstate.ContainerStopped{ID: action.ID, Instance: in}
}

func (j job) stopSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, sandboxTimeout)
	defer cancel()
	_, err := j.agent.cfg.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if notFound(err) {
		return nil
	}
	return err
}

func (j job) removeContainer(ctx context.Context, action podstate.RemoveContainer) error {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	_, err := j.agent.cfg.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: action.ID})
	if err != nil && !notFound(err) {
		return err
	}
	dir := j.podDir()
	if dir == "" || action.Index < 0 {
		return nil
	}
	container := podstate.ContainerAt(j.pod, action.Index).GetName()
	files, err := podlog.Files(filepath.Join(dir, criconfig.LogName(container, action.Attempt)))
	if err != nil {
		return err
	}
	for _, f := range append(files, filepath.Join(dir, criconfig.MessageName(container, action.Attempt))) {
		if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// remove frees all that the pod holds on the node. spec: DEL-7
func (j job) remove(ctx context.Context, action podstate.Remove) error {
	ctx, cancel := context.WithTimeout(ctx, sandboxTimeout)
	defer cancel()
	for _, id := range action.Sandboxes {
		_, err := j.agent.cfg.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		if err != nil && !notFound(err) {
			return err
		}
	}
	if err := j.takeVolumesDown(ctx); err != nil {
		return err
	}
	if dir := j.podDir(); dir != "" {
		if err := os.RemoveAll(dir); err != nil && !errors.Is(err, syscall.ENAMETOOLONG) { // such a one was never made
			return err
		}
	}
	j.agent.users.release(uidOf(j.pod))
	j.removeGroup(ctx)
	return nil
}

// call runs one call to the API, a bounded number at a time.
func (a *Agent) call(ctx context.Context, f func(ctx context.Context) error) error {
	select {
	case a.apiSlots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-a.apiSlots }()
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return f(ctx)
}

func (j job) writeStatus(ctx context.Context, p *corev1.Pod) podstate.Input {
	if j.static != nil {
		return j.agent.static.written(j.static, p)
	}
	var now *corev1.Pod
	err := j.agent.call(ctx, func(ctx context.Context) (err error) {
		now, err = j.agent.cfg.Client.Pods.UpdateStatus(ctx, &corev1rpc.UpdatePodRequest{
			Namespace: p.GetMetadata().GetNamespace(), Name: p.GetMetadata().GetName(), Object: p,
		})
		return err
	})
	switch {
	case err == nil && uidOf(now) == uidOf(p):
		return podstate.StatusWritten{Pod: now}
	case err == nil, apierrors.Is(err, apierrors.NotFound), apierrors.Is(err, apierrors.Conflict):
		return podstate.StatusWritten{Outcome: podstate.Conflict}
	default:
		j.warn(ctx, "status of a pod cannot be written", err)
		return podstate.StatusWritten{Outcome: podstate.Failed}
	}
}

// lookup asks the API, by a linearizable read, whether the pod is still this node's. spec: DEL-9
func (j job) lookup(ctx context.Context) podstate.Input {
	if j.static != nil {
		return j.agent.static.lookup(j.static, uidOf(j.pod))
	}
	var now *corev1.Pod
	err := j.agent.call(ctx, func(ctx context.Context) (err error) {
		meta := j.pod.GetMetadata()
		now, err = j.agent.cfg.Client.Pods.Get(ctx, &metav1.GetRequest{Namespace: meta.GetNamespace(), Name: meta.GetName()})
		return err
	})
	switch {
	case apierrors.Is(err, apierrors.NotFound), err == nil && uidOf(now) != uidOf(j.pod):
		return podstate.LookedUp{Outcome: podstate.Missing}
	case err != nil:
		j.warn(ctx, "pod cannot be read", err)
		return podstate.LookedUp{Outcome: podstate.Failed}
	default:
		return podstate.LookedUp{Pod: now}
	}
}

// deletePod completes a graceful deletion. spec: DEL-7, DEL-11
func (j job) deletePod(ctx context.Context) podstate.Input {
	if j.static != nil {
		return podstate.PodDeleted{}
	}
	meta := j.pod.GetMetadata()
	err := j.agent.call(ctx, func(ctx context.Context) error {
		_, err := j.agent.cfg.Client.Pods.Delete(ctx, &metav1.DeleteRequest{
			Namespace: meta.GetNamespace(), Name: meta.GetName(),
			Options: &metav1.DeleteOptions{
				GracePeriodSeconds: proto.Int64(0), Preconditions: &metav1.Preconditions{Uid: proto.String(meta.GetUid())},
			},
		})
		return err
	})
	switch {
	case err == nil:
		return podstate.PodDeleted{}
	case apierrors.Is(err, apierrors.NotFound):
		return podstate.PodDeleted{Outcome: podstate.Missing}
	case apierrors.Is(err, apierrors.Conflict):
		return podstate.PodDeleted{Outcome: podstate.Conflict} // another uid, most likely: it is looked up
	default:
		j.warn(ctx, "pod cannot be deleted", err)
		return podstate.PodDeleted{Outcome: podstate.Failed}
	}
}

// warn logs a failed call; being told to stop is not a failure.
func (j job) warn(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		j.agent.cfg.Logger.Warn(what, "pod", name(j.pod), "uid", uidOf(j.pod), "error", err)
	}
}
