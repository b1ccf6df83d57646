package nodeagent

import (
	"context"
	"fmt"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/criconfig"
)

// nodeFacts returns what the configuration of all pods here has in common.
func (a *Agent) nodeFacts() criconfig.Node {
	n := criconfig.Node{SeccompDir: a.cfg.SeccompDir}
	if !a.cfg.Simulated {
		n.MaskedPaths = throttles()
	}
	return n
}

// throttles returns the counters by which a container could find out what else this machine is busy with.
func throttles() []string {
	paths, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle") // the pattern is well-formed
	return paths
}

// containerFacts returns what the configuration of a container needs to know. Ref is what the runtime calls its image.
func (j job) containerFacts(ctx context.Context, c *corev1.Container, ref string) (criconfig.Facts, error) {
	f := j.facts()
	var err error
	if f.ImageUser, err = j.imageUser(ctx, ref); err != nil {
		return f, err
	}
	f.TargetID, err = j.targetOf(ctx, c.GetName())
	return f, err
}

// targetOf returns the container whose processes an ephemeral container is to see; empty for other containers, and for
// those that name none.
func (j job) targetOf(ctx context.Context, container string) (string, error) {
	of := ""
	for _, e := range j.pod.GetSpec().GetEphemeralContainers() {
		if e.GetEphemeralContainerCommon().GetName() == container {
			of = e.GetTargetContainerName()
		}
	}
	if of == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	got, err := j.agent.cfg.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
			LabelSelector: map[string]string{
				criconfig.LabelPodUID: uidOf(j.pod), criconfig.LabelContainerName: of,
			},
		},
	})
	if err != nil {
		return "", err
	}
	if len(got.GetContainers()) == 0 {
		return "", fmt.Errorf("the target container %q of ephemeral container %q does not run", of, container)
	}
	return got.GetContainers()[0].GetId(), nil
}

// imageUser returns who an image says that its processes are.
func (j job) imageUser(ctx context.Context, ref string) (criconfig.ImageUser, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	got, err := j.agent.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{
		Image: &runtimeapi.ImageSpec{Image: ref},
	})
	if err != nil {
		return criconfig.ImageUser{}, err
	}
	user := criconfig.ImageUser{Name: got.GetImage().GetUsername()}
	if uid := got.GetImage().GetUid(); uid != nil {
		user.UID, user.Name = &uid.Value, ""
	}
	return user, nil
}
