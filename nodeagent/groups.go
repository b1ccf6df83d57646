package nodeagent

import (
	"context"
	"encoding/json"
	"errors"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/podcgroup"
	"monoplane.dev/rules/qos"
	podlevel "monoplane.dev/rules/resources"
)

// findGroups finds out how the runtime names the cgroups of pods; nil when it does not say.
func (a *Agent) findGroups(ctx context.Context) *podcgroup.Groups {
	if a.cfg.Simulated {
		return nil
	}
	systemd, known := a.cgroupDriver(ctx)
	if !known {
		return nil
	}
	return a.cfg.Cgroups(systemd)
}

// cgroupDriver asks the runtime whether it has systemd manage cgroups. Known is false when it does not say.
func (a *Agent) cgroupDriver(ctx context.Context) (systemd, known bool) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	c, err := a.cfg.Runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if err == nil {
		return c.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD, c.GetLinux() != nil
	}
	// containerd before 2.0 does not know the call, but tells its configuration.
	got, err := a.cfg.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return false, false
	}
	return driverOf(got.GetInfo()["config"])
}

// driverOf reads the configuration of a containerd.
func driverOf(config string) (systemd, known bool) {
	var c struct {
		Containerd struct {
			DefaultRuntimeName string `json:"defaultRuntimeName"`
			Runtimes           map[string]struct {
				Type    string `json:"runtimeType"`
				Options struct{ SystemdCgroup bool }
			} `json:"runtimes"`
		} `json:"containerd"`
	}
	if json.Unmarshal([]byte(config), &c) != nil {
		return false, false
	}
	r, ok := c.Containerd.Runtimes[c.Containerd.DefaultRuntimeName]
	return r.Options.SystemdCgroup, ok && r.Type == "io.containerd.runc.v2"
}

// runtimeLimitsPods asks the runtime whether it limits pods as a whole by itself, in cgroups of its own, as
// UpdatePodSandboxResources tells it. For other runtimes the call is but news of what the agent has done.
func (a *Agent) runtimeLimitsPods(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	got, err := a.cfg.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	return err == nil && got.GetInfo()["limits_pods"] == "cgroup"
}

// hasGroup reports whether what the pod as a whole may use can be set.
func (a *Agent) hasGroup() bool { return a.groups != nil || a.limitsPods }

// cgroupParent returns where the runtime is to put the pod's containers; empty where it has its own place.
func (j job) cgroupParent() string {
	if j.agent.groups == nil {
		return ""
	}
	return j.agent.groups.Parent(uidOf(j.pod), qos.Of(j.pod))
}

// prepareGroup makes the pod's cgroup with what the pod as a whole may use, where the agent makes it. The error is for
// settleGroup.
func (j job) prepareGroup() error {
	g := j.agent.groups
	if g == nil {
		if whole := j.pod.GetSpec().GetResources().GetLimits(); !j.agent.limitsPods && !j.agent.cfg.Simulated &&
			(whole[podlevel.CPU] != nil || whole[podlevel.Memory] != nil || j.agent.cfg.PodMaxPIDs > 0) {
			return errors.New("the container runtime has cgroups of its own, or does not say how it names them")
		}
		return nil
	}
	return g.Prepare(uidOf(j.pod), qos.Of(j.pod), criconfig.PodResources(j.pod, j.facts()))
}

// settleGroup sets what could not be set before the sandbox was there, and tells the user when limits of the pod as a
// whole are not enforced. Those of its containers are the runtime's, and hold all the same.
func (j job) settleGroup(ctx context.Context, sandbox string, err error) {
	r := criconfig.PodResources(j.pod, j.facts())
	switch g := j.agent.groups; {
	case err != nil:
	case g != nil:
		err = g.Settle(ctx, uidOf(j.pod), qos.Of(j.pod), r)
	case j.agent.limitsPods:
		err = j.limitSandbox(ctx, sandbox, r)
	}
	if err == nil {
		return
	}
	if r.GetCpuQuota() == 0 && r.GetMemoryLimitInBytes() == 0 {
		j.warn(ctx, "the cgroup of a pod cannot be set up", err)
		return
	}
	j.agent.cfg.Recorder.Event(j.pod, record.Warning, "NotEnforced", "Starting",
		"The limits of the pod as a whole are not enforced, only those of each container: "+text(err))
}

// limitSandbox has a runtime that limits pods do so.
func (j job) limitSandbox(ctx context.Context, sandbox string, r *runtimeapi.LinuxContainerResources) error {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	_, err := j.agent.cfg.Runtime.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: sandbox, Resources: r,
	})
	return err
}

// limitSandboxes does so for the sandbox that the pod has now.
func (j job) limitSandboxes(ctx context.Context, r *runtimeapi.LinuxContainerResources) error {
	_, boxes, err := j.agent.listRuntime(ctx, map[string]string{criconfig.LabelPodUID: uidOf(j.pod)})
	if err != nil {
		return err
	}
	for _, box := range boxes {
		if box.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY || !j.agent.owns(box.GetLabels()) {
			continue
		}
		if err := j.limitSandbox(ctx, box.GetId(), r); err != nil {
			return err
		}
	}
	return nil
}

// removeGroup removes the pod's cgroup.
func (j job) removeGroup(ctx context.Context) {
	if g := j.agent.groups; g != nil {
		if err := g.Remove(uidOf(j.pod), qos.Of(j.pod)); err != nil {
			j.warn(ctx, "the cgroup of a pod cannot be removed", err)
		}
	}
}
