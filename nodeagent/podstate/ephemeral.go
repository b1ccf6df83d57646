package podstate

import corev1 "monoplane.dev/api/core/v1"

// ContainerAt returns the container of a pod by its place among the init containers, then the containers, then the
// ephemeral ones; nil when there is none.
func ContainerAt(p *corev1.Pod, i int) *corev1.Container {
	inits, apps := p.GetSpec().GetInitContainers(), p.GetSpec().GetContainers()
	if i < len(inits) {
		return inits[i]
	}
	if i -= len(inits); i < len(apps) {
		return apps[i]
	}
	if i -= len(apps); i < len(p.GetSpec().GetEphemeralContainers()) {
		return asContainer(p.GetSpec().GetEphemeralContainers()[i])
	}
	return nil
}

// TargetAt returns the name of the container whose processes the container at a place is to see, empty for none: only
// ephemeral ones have that.
func TargetAt(p *corev1.Pod, i int) string {
	all := p.GetSpec().GetEphemeralContainers()
	if i -= len(p.GetSpec().GetInitContainers()) + len(p.GetSpec().GetContainers()); i < 0 || i >= len(all) {
		return ""
	}
	return all[i].GetTargetContainerName()
}

// asContainer returns the definition of an ephemeral container in the form of the others, with which it shares what is
// in it. What ephemeral containers cannot have is left out. spec: INIT-6
func asContainer(e *corev1.EphemeralContainer) *corev1.Container {
	c := e.GetEphemeralContainerCommon()
	return &corev1.Container{
		Name: c.GetName(), Image: c.GetImage(), Command: c.GetCommand(), Args: c.GetArgs(), WorkingDir: c.GetWorkingDir(),
		EnvFrom: c.GetEnvFrom(), Env: c.GetEnv(), VolumeMounts: c.GetVolumeMounts(), VolumeDevices: c.GetVolumeDevices(),
		TerminationMessagePath: c.GetTerminationMessagePath(), TerminationMessagePolicy: c.GetTerminationMessagePolicy(),
		ImagePullPolicy: c.GetImagePullPolicy(), SecurityContext: c.GetSecurityContext(),
		Stdin: c.GetStdin(), StdinOnce: c.GetStdinOnce(), Tty: c.GetTty(),
	}
}

// meetEphemeral takes up the ephemeral containers that were added to the pod. They are never removed. spec: INIT-6
func (m *StateMachine) meetEphemeral() {
	all := m.pod.GetSpec().GetEphemeralContainers()
	for i := len(m.ephemerals); i < len(all); i++ {
		m.ephemerals = append(m.ephemerals, asContainer(all[i]))
		m.containers = append(m.containers, container{})
	}
}

// planEphemeral starts an ephemeral container that was never started, whatever the others do. It reports whether it
// did. spec: INIT-6
func (m *StateMachine) planEphemeral() bool {
	for i := len(m.containers) - len(m.ephemerals); i < len(m.containers); i++ {
		if m.containers[i].State == None && m.start(i) {
			return true
		}
	}
	return false
}

// target returns the id of the container whose processes container i is to see; empty for none, or when that does not
// run.
func (m *StateMachine) target(i int) string {
	name := TargetAt(m.pod, i)
	if name == "" {
		return ""
	}
	t := m.index(name)
	if t < 0 || m.containers[t].State != Running {
		return ""
	}
	return m.containers[t].ID
}
