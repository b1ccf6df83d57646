package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/podstate"
)

// imageName is what an image reference looks like: a registry, a path in lower case, a tag, a digest. The runtime has
// the last word.
var imageName = regexp.MustCompile(`^(([a-zA-Z0-9.-]+|\[[0-9a-fA-F:]+\])(:[0-9]+)?/)?` +
	`[a-z0-9]+((\.|_|__|-+|/)[a-z0-9]+)*` +
	`(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[A-Za-z][A-Za-z0-9]*([+._-][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$`)

// startContainer pulls, creates and starts. Only the pull can be given up (by the context pull): a start that was
// given up half-way could run on unseen. spec: CTR-4, CTR-6
func (j job) startContainer(ctx, pull context.Context, action podstate.StartContainer) podstate.Input {
	spec := podstate.ContainerAt(j.pod, action.Index)
	out := podstate.ContainerRun{Index: action.Index}
	sandbox := criconfig.Sandbox(j.pod, 0, j.agent.cfg.PodLogDir, j.facts())

	ref, reason, err := j.pullImage(pull, spec, sandbox)
	if err == nil {
		out.Instance, reason, err = j.createAndStart(ctx, spec, sandbox, ref, action)
	}
	if err != nil {
		out.Reason, out.Message = reason, text(err)
	}
	return out
}

// pullImage sees to it that the image is there and returns what the runtime calls it.
func (j job) pullImage(ctx context.Context, spec *corev1.Container, sandbox *runtimeapi.PodSandboxConfig) (ref, reason string, err error) {
	image := &runtimeapi.ImageSpec{Image: spec.GetImage(), UserSpecifiedImage: spec.GetImage()}
	if !imageName.MatchString(spec.GetImage()) {
		return "", "InvalidImageName", fmt.Errorf("image name %q is not valid", spec.GetImage())
	}
	if policy := spec.GetImagePullPolicy(); policy != "Always" {
		have, err := j.agent.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image})
		if err != nil {
			return "", "ImageInspectError", err
		}
		if have.GetImage().GetId() != "" {
			return have.GetImage().GetId(), "", nil
		}
		if policy == "Never" {
			return "", "ErrImageNeverPull", fmt.Errorf("image %q is not here and its pull policy is Never", spec.GetImage())
		}
	}
	pulled, err := j.agent.cfg.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image, SandboxConfig: sandbox})
	if err != nil {
		return "", "ErrImagePull", err
	}
	return pulled.GetImageRef(), "", nil
}

func (j job) createAndStart(
	ctx context.Context, spec *corev1.Container, sandbox *runtimeapi.PodSandboxConfig, ref string, action podstate.StartContainer,
) (in podstate.Instance, reason string, err error) {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	which := criconfig.Instance{Attempt: action.Attempt, Hash: podstate.Hash(spec), Delay: action.Delay}
	cfg, err := criconfig.Container(j.pod, spec, which, ref, j.podDir(), j.facts())
	if err == nil {
		err = j.makeFiles(spec, action.Attempt)
	}
	if err != nil {
		return in, "CreateContainerConfigError", err
	}
	created, err := j.agent.cfg.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: action.SandboxID, Config: cfg, SandboxConfig: sandbox,
	})
	if err != nil {
		return in, "CreateContainerError", err
	}
	id := created.GetContainerId()
	_, startErr := j.agent.cfg.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	in, err = j.agent.instance(ctx, id, j.warnLimits(spec.GetName()))
	in.SandboxID = action.SandboxID
	switch {
	case startErr == nil && err == nil:
		return in, "", nil
	case startErr == nil:
		// It was started, so it runs until something else is known.
		return podstate.Instance{
			ID: id, Name: spec.GetName(), SandboxID: action.SandboxID, Attempt: action.Attempt,
			State: podstate.Running, Hash: which.Hash,
		}, "", nil
	case err == nil && in.State == podstate.Running:
		return in, "", nil // the call failed, the start did not
	}
	if in.State != podstate.Exited {
		in = podstate.Instance{
			ID: id, Name: spec.GetName(), SandboxID: action.SandboxID, Attempt: action.Attempt, State: podstate.Exited,
			ExitCode: 128, Image: spec.GetImage(), Hash: which.Hash, FinishedAt: now(),
		}
	}
	in.Reason = "StartError"
	if in.Message == "" {
		in.Message = text(startErr)
	}
	return in, "RunContainerError", startErr
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
	f, err := os.Create(path)
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
			j.agent.cfg.Recorder.Event(j.pod, record.Warning, "NotEnforced", "Starting", "Container "+container+": "+w)
		}
	}
}
