package host

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// What is handed out is always a copy: callers of an in-process connection may keep it.

func (sb *sandbox) readyLocked() bool { return !sb.ending && !sb.isGone() }

func (sb *sandbox) stateLocked() runtimeapi.PodSandboxState {
	if sb.readyLocked() {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// ipsLocked are the addresses that are the sandbox's: one in which nothing runs any more has none, as they are given
// to others.
func (sb *sandbox) ipsLocked() []string {
	if sb.isGone() || sb.addressesBack {
		return nil
	}
	return sb.ips
}

func (sb *sandbox) statusLocked() *runtimeapi.PodSandboxStatus {
	config := sb.rec.config
	st := &runtimeapi.PodSandboxStatus{
		Id: sb.id, Metadata: proto.Clone(config.GetMetadata()).(*runtimeapi.PodSandboxMetadata), State: sb.stateLocked(),
		CreatedAt: sb.rec.createdAt, Network: &runtimeapi.PodSandboxNetworkStatus{},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{
			Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_NODE, Ipc: runtimeapi.NamespaceMode_NODE,
		}}},
		Labels: maps.Clone(config.GetLabels()), Annotations: maps.Clone(config.GetAnnotations()),
		RuntimeHandler: sb.rec.handler,
	}
	for i, ip := range sb.ipsLocked() {
		if i == 0 {
			st.Network.Ip = ip
			continue
		}
		st.Network.AdditionalIps = append(st.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
	}
	if asked := config.GetLinux().GetSecurityContext().GetNamespaceOptions(); sb.rec.isolated {
		st.Linux.Namespaces.Options = proto.CloneOf(asked)
	}
	return st
}

// listLocked lists the containers of a sandbox, oldest first.
func (sb *sandbox) listLocked() []*container {
	return slices.SortedFunc(maps.Values(sb.containers), func(a, b *container) int {
		return cmp.Or(cmp.Compare(a.rec.createdAt, b.rec.createdAt), cmp.Compare(a.id, b.id))
	})
}

func (c *container) stateLocked() runtimeapi.ContainerState {
	switch c.state.Phase {
	case shimwire.Created:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	case shimwire.Exited:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return runtimeapi.ContainerState_CONTAINER_RUNNING
}

// statusLocked is all that is told of a container.
func (c *container) statusLocked() *runtimeapi.ContainerStatus {
	st := c.briefStatusLocked()
	if has := c.resourcesLocked(); has != nil {
		st.Resources = &runtimeapi.ContainerResources{Linux: proto.CloneOf(has)}
	}
	for _, m := range c.rec.config.GetMounts() {
		st.Mounts = append(st.Mounts, proto.Clone(m).(*runtimeapi.Mount))
	}
	return st
}

// briefStatusLocked leaves out what a list has no place for.
func (c *container) briefStatusLocked() *runtimeapi.ContainerStatus {
	config := c.rec.config
	st := &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: proto.Clone(config.GetMetadata()).(*runtimeapi.ContainerMetadata), State: c.stateLocked(),
		CreatedAt: c.rec.createdAt, Image: proto.Clone(config.GetImage()).(*runtimeapi.ImageSpec), ImageRef: ImageName,
		ImageId: ImageName,
		Labels:  maps.Clone(config.GetLabels()), Annotations: maps.Clone(config.GetAnnotations()),
		LogPath: c.logPath(), StopSignal: config.GetStopSignal(),
	}
	if c.rec.image != "" {
		st.ImageRef, st.ImageId = cmp.Or(c.rec.reference, c.rec.image), c.rec.image
	}
	if c.state.Phase != shimwire.Created {
		st.StartedAt = c.state.StartedAt
	}
	if c.state.Phase == shimwire.Exited {
		st.FinishedAt, st.ExitCode = c.state.FinishedAt, int32(c.state.ExitCode)
		st.Reason, st.Message = c.state.Reason, c.state.Message
		if st.Reason == "" {
			st.Reason = "Error"
			if st.ExitCode == 0 {
				st.Reason = "Completed"
			}
		}
	}
	return st
}

// resourcesLocked returns what the container was given last.
func (c *container) resourcesLocked() *runtimeapi.LinuxContainerResources {
	if c.resources != nil {
		return c.resources
	}
	return c.rec.config.GetLinux().GetResources()
}

// warningsLocked lists what was asked for and is not done.
func (c *container) warningsLocked() []string {
	all := slices.Clone(c.rec.warnings)
	for _, w := range c.unenforced {
		if !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	return append(all, c.state.Warnings...)
}

// infoLocked is the info map of ContainerStatus.
func (c *container) infoLocked() map[string]string {
	info := map[string]string{}
	if w := c.warningsLocked(); len(w) > 0 {
		b, _ := json.Marshal(w) // Strings always marshal.
		info["warnings"] = string(b)
	}
	if c.state.PID > 0 && c.state.Phase < shimwire.Exited {
		b, _ := json.Marshal(c.state.PID)
		info["pid"] = string(b)
	}
	return info
}

func labelsMatch(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}
