package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/podstate"
)

// startContainer pulls, creates and starts. The pull is given up at once when the context wanted ends, the rest a
// while later: a start that was given up half-way may run on unseen. spec: CTR-4, CTR-6
func (j job) startContainer(ctx, wanted context.Context, action podstate.StartContainer) podstate.Input {
	spec := podstate.ContainerAt(j.pod, action.Index)
	out := podstate.ContainerRun{Index: action.Index}
	sandbox, _, err := j.sandboxConfig(0)
	if err != nil {
		out.Reason, out.Message = "CreateContainerConfigError", text(err)
		return out
	}
	var of images
	if of.volumes, err = j.pullVolumes(wanted, spec, sandbox, &out); err == nil {
		of.ref, out.Reason, err = j.pullImage(wanted, spec.GetImage(), spec.GetImagePullPolicy(),
			containerPath(j.pod, spec.GetName()), sandbox)
	}
	if err != nil {
		out.Message = text(err)
		return out
	}
	ctx, cancel := outlast(ctx, wanted)
	defer cancel()
	j.createAndStart(ctx, spec, sandbox, of, action, &out)
	return out
}

// images are those that a container is made of.
type images struct {
	// ref is what the runtime calls its own.
	ref string
	// volumes are those that it mounts, by the names of the volumes.
	volumes map[string]*runtimeapi.ImageSpec
}

// patience is how long a call that makes or starts something goes on after it is no longer wanted.
const patience = 5 * time.Second

// outlast returns a context that ends with ctx, or patience after wanted.
func outlast(ctx, wanted context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	var timer *time.Timer
	done := make(chan struct{})
	stop := context.AfterFunc(wanted, func() {
		defer close(done)
		timer = time.AfterFunc(patience, cancel)
	})
	return ctx, func() {
		cancel()
		if !stop() {
			<-done
			timer.Stop()
		}
	}
}

// createAndStart says in out what came of it.
func (j job) createAndStart(
	ctx context.Context, spec *corev1.Container, sandbox *runtimeapi.PodSandboxConfig, of images,
	action podstate.StartContainer, out *podstate.ContainerRun,
) {
	which := criconfig.Instance{Attempt: action.Attempt, Hash: podstate.HashAt(j.pod, action.Index), Delay: action.Delay}
	facts, err := j.containerFacts(ctx, action, of.ref)
	if err != nil {
		out.Reason, out.Message = "CreateContainerConfigError", text(err)
		return
	}
	cfg, err := criconfig.Container(j.pod, spec, which, of.ref, j.podDir(), facts)
	if err == nil {
		err = j.makeFiles(spec, action.Attempt)
	}
	if err == nil {
		err = j.mountVolumes(ctx, spec, of.volumes, cfg)
	}
	if err != nil {
		out.Reason, out.Message, out.Invalid = "CreateContainerConfigError", text(err), hopeless(err)
		return
	}
	j.limitStorage(spec, cfg)
	criconfig.MapMounts(cfg)
	id, err := j.createContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: action.SandboxID, Config: cfg, SandboxConfig: sandbox,
	})
	if err != nil {
		out.Reason, out.Message, out.Invalid = "CreateContainerError", text(err), hopeless(err)
		return
	}
	known := podstate.Instance{
		ID: id, Name: spec.GetName(), SandboxID: action.SandboxID, Attempt: action.Attempt, State: podstate.Created,
		Hash: which.Hash,
	}
	expiry := now().Add(startTimeout)
	start, cancel := context.WithDeadline(ctx, expiry)
	_, startErr := j.agent.cfg.Runtime.StartContainer(start, &runtimeapi.StartContainerRequest{ContainerId: id})
	cancel()
	// The answer to the start may be missing because the time was up, or the start no longer wanted.
	in, err := j.agent.instance(j.agent.context(), id, j.warnLimits(spec.GetName()))
	if err == nil && (in.Name != spec.GetName() || in.Attempt != action.Attempt) {
		out.Reason, out.Message = "CreateContainerError", fmt.Sprintf(
			"the container runtime has made container %s, attempt %d, as %s, which is %s, attempt %d", spec.GetName(),
			action.Attempt, id, in.Name, in.Attempt)
		return
	}
	if err == nil {
		known = in
		known.SandboxID = action.SandboxID
	}
	switch {
	case startErr == nil:
		if err != nil {
			known.State = podstate.Running // it was started, so it runs until something else is known
		}
	case known.State == podstate.Running: // the call failed, the start did not
	case known.State == podstate.Exited:
		known.Reason = "StartError"
		if known.Message == "" {
			known.Message = text(startErr)
		}
		out.Reason, out.Message = "RunContainerError", text(startErr)
	case unclear(startErr):
		out.Expiry = expiry
		if soon := now().Add(lostTimeout); status.Code(startErr) == codes.Unavailable && soon.Before(expiry) {
			out.Expiry = soon // who was to answer is gone
		}
		out.Reason, out.Message = "StartUnconfirmed", "the runtime has not said whether the container was started, and "+
			"nothing is "+
			"started in its place until it is known to run or to be dead: "+text(startErr)
	default:
		out.Reason, out.Message = "RunContainerError", text(startErr)
	}
	out.Instance = known
}

func (j job) createContainer(ctx context.Context, req *runtimeapi.CreateContainerRequest) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	created, err := j.agent.cfg.Runtime.CreateContainer(ctx, req)
	return created.GetContainerId(), err
}

// unclear reports whether a call to the runtime may have been carried out, or may be yet, although it failed.
func unclear(err error) bool {
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// hopeless reports whether what failed will fail again whatever changes but the pod: the runtime calls what it is
// asked for invalid, or the system calls a name too long. All else may be mended by somebody, and is tried again.
func hopeless(err error) bool {
	return status.Code(err) == codes.InvalidArgument || errors.Is(err, syscall.ENAMETOOLONG)
}

// makeFiles makes the files of an instance that the runtime expects to find.
func (j job) makeFiles(spec *corev1.Container, attempt uint32) error {
	dir := j.podDir()
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(dir, spec.GetName()), 0o700); err != nil {
		return err
	}
	if spec.GetTerminationMessagePath() == "" {
		return nil
	}
	path := filepath.Join(dir, criconfig.MessageName(spec.GetName(), attempt))
	// A link that somebody has put there is not followed, nor a pipe waited for.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	// Processes of any user may write their message, whatever the agent's umask.
	return errors.Join(f.Chmod(0o666), f.Close())
}

// warnLimits returns a function that tells the user what the runtime says it cannot enforce: a JSON list under
// "warnings" in the info of a container's status.
func (j job) warnLimits(container string) func(info map[string]string) {
	return func(info map[string]string) {
		var all []string
		if json.Unmarshal([]byte(info["warnings"]), &all) != nil {
			return
		}
		for _, w := range all {
			j.agent.cfg.Recorder.EventIn(j.pod, containerPath(j.pod, container), record.Warning, "NotEnforced", "Starting",
				"Container "+container+": "+w)
		}
	}
}
