package podstate

import (
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
)

// What the runtime says of an instance is in the status, and stays there when the instance has ended. spec: LIFE-9
func TestFacts(t *testing.T) {
	w := newModel("Never", 30, []string{"main"}, nil)
	possible, enabled := "IfPossible", "Enabled"
	w.container("main").VolumeMounts = []*corev1.VolumeMount{
		{Name: "a", MountPath: "/a"},
		{Name: "b", MountPath: "/b", ReadOnly: true},
		{Name: "c", MountPath: "/c", ReadOnly: true, RecursiveReadOnly: &possible},
		{Name: "d", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: &enabled},
	}
	w.agentStarts()
	must[Admit](t, w, nil)
	w.step(Admission{})
	w.step(SandboxRun{Sandbox: w.runSandbox(must[RunSandbox](t, w, nil))})
	a := must[StartContainer](t, w, nil)
	in := w.startContainer(a)
	in.Facts = &Facts{StopSignal: "SIGRTMIN+1", RecursiveReadOnly: []string{"/c"}, User: &corev1.ContainerUser{
		Linux: &corev1.LinuxContainerUser{Uid: 1, Gid: 2, SupplementalGroups: []int64{3}},
	}}
	w.step(ContainerRun{Index: a.Index, Instance: in})
	check := func(s *corev1.ContainerStatus) {
		t.Helper()
		if s.GetStopSignal() != "SIGRTMIN+1" || !proto.Equal(s.GetUser(), in.Facts.User) {
			t.Errorf("status: %v", s)
		}
		disabled := "Disabled"
		for i, want := range []*corev1.VolumeMountStatus{
			{Name: "a", MountPath: "/a"},
			{Name: "b", MountPath: "/b", ReadOnly: true, RecursiveReadOnly: &disabled},
			{Name: "c", MountPath: "/c", ReadOnly: true, RecursiveReadOnly: &enabled},
			{Name: "d", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: &enabled},
		} {
			if !proto.Equal(s.GetVolumeMounts()[i], want) {
				t.Errorf("mount: %v, want %v", s.GetVolumeMounts()[i], want)
			}
		}
	}
	first := must[WriteStatus](t, w, nil)
	check(first.Pod.GetStatus().GetContainerStatuses()[0])
	w.step(w.write(first))
	w.exit(in.ID, 0)
	w.step(Observed{Seen: w.seen()})
	check(w.m.status().GetContainerStatuses()[0])
}
