package oracle

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	ourpod "monoplane.dev/apiserver/kinds/core/pod"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// storedPod is a valid pod with everything that the server adds.
func storedPod(t *testing.T, gated bool) *v1.Pod {
	t.Helper()
	k := rich()
	if !gated {
		k.Spec.SchedulingGates = nil
	}
	p, errs := created(t, k)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	p.UID, p.ResourceVersion = "uid", "5"
	return p
}

// within returns the differences that count when Kubernetes stopped early: what only it found.
func within(diff []string) []string {
	var left []string
	for _, d := range diff {
		if strings.HasPrefix(d, "only Kubernetes") {
			left = append(left, d)
		}
	}
	return left
}

// spec: OBJ-5, OBJ-10, OBJ-14
func TestPodUpdatesAreJudgedAlike(t *testing.T) {
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old := storedPod(t, r.IntN(3) == 0)
		k := old.DeepCopy()
		what := alter(r, k, r.IntN(4), func(path string) bool {
			// Kubernetes tolerates both policies once the old pod has one; the change is refused all the same.
			return !strings.HasSuffix(path, ".SELinuxChangePolicy")
		})
		errs := ask[faults](t, "pod-updates", k, old)
		p, o := ourPod(t, k), ourPod(t, old)
		ourpod.Default(p)
		keep(p.Metadata, o.Metadata)
		diff := compare(errs, ourFaults(ourpod.ValidateUpdate(p, o)))
		for e := range errs {
			if strings.Contains(e.message, "may not add or remove containers") || e.field == "spec.activeDeadlineSeconds" {
				diff = within(diff)
				break
			}
		}
		if report(t, what, diff) {
			bad++
		}
	}
}

// runs has the pod run on a node that reports what its containers have.
func runs(p *v1.Pod) {
	p.Spec.NodeName, p.Status.Phase = "node", v1.PodRunning
	status := func(containers []v1.Container) (out []v1.ContainerStatus) {
		for _, c := range containers {
			out = append(out, v1.ContainerStatus{Name: c.Name, Resources: c.Resources.DeepCopy(),
				AllocatedResources: c.Resources.Requests, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}})
		}
		return out
	}
	p.Status.ContainerStatuses, p.Status.InitContainerStatuses = status(p.Spec.Containers), status(p.Spec.InitContainers)
}

// spec: OBJ-10
func TestPodResizesAreJudgedAlike(t *testing.T) {
	r := random(t)
	resize := ourpod.New(registry.Deps{}, nil, nil).Strategy().Resources["resize"]
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old := storedPod(t, r.IntN(3) == 0)
		if r.IntN(2) == 0 {
			old.Spec.Resources, old.Status.QOSClass = nil, ""
		}
		if r.IntN(2) == 0 {
			runs(old)
			if r.IntN(4) == 0 { // as on a node that knows nothing of resizes
				old.Status.ContainerStatuses[0].Resources = nil
			}
		}
		k := old.DeepCopy()
		if r.IntN(5) == 0 {
			k.Spec.Resources = pick(r, []*v1.ResourceRequirements{nil, {}, {Requests: v1.ResourceList{
				"cpu": resource.MustParse("9"), "memory": resource.MustParse("9Gi")}}})
		}
		what := alter(r, k, r.IntN(4), func(path string) bool {
			// Most changes are dropped, or the same as in TestPodUpdatesAreJudgedAlike.
			return strings.Contains(path, ".Resources.") || strings.Contains(path, ".ResizePolicy") ||
				(strings.Contains(path, "ontainers") && r.IntN(20) == 0)
		})
		theirs := ask[made[*v1.Pod]](t, "pod-resizes", k, old)
		p, o := ourPod(t, k), ourPod(t, old)
		next := resize.Apply(p, o).(*corev1.Pod)
		keep(next.Metadata, o.Metadata)
		if report(t, what, compare(theirs.Faults, ourFaults(ourpod.ValidateResize(next, o)))) {
			bad++
			continue
		}
		if len(theirs.Faults) > 0 {
			continue
		}
		if want := ourPod(t, theirs.Object); !validation.Equal(next.Spec, want.Spec) {
			t.Errorf("after %v:\nstored %v\nwant   %v", what, next.Spec.Containers, want.Spec.Containers)
			bad++
		}
	}
}

// spec: INIT-6
func TestEphemeralContainersAreJudgedAlike(t *testing.T) {
	r := random(t)
	ephemeral := ourpod.New(registry.Deps{}, nil, nil).Strategy().Resources["ephemeralcontainers"]
	// Any container can be one for debugging, but for some of its fields.
	like := func(c v1.Container, name string) v1.EphemeralContainer {
		e := v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon(c), TargetContainerName: "app"}
		e.Name, e.Ports, e.LivenessProbe, e.ReadinessProbe, e.StartupProbe, e.Lifecycle = name, nil, nil, nil, nil, nil
		e.Resources, e.ResizePolicy, e.RestartPolicy = v1.ResourceRequirements{}, nil, nil
		e.RestartPolicyRules = nil
		for i := range e.VolumeMounts {
			e.VolumeMounts[i].SubPath, e.VolumeMounts[i].SubPathExpr = "", ""
		}
		return e
	}
	bad, alike := 0, 0
	for i := 0; i < *count && bad < 25; i++ {
		old := storedPod(t, r.IntN(3) == 0)
		if r.IntN(3) > 0 {
			old.Spec.EphemeralContainers = []v1.EphemeralContainer{like(old.DeepCopy().Spec.Containers[0], "debug")}
		}
		if r.IntN(20) == 0 {
			old.Annotations[v1.MirrorPodAnnotationKey] = "x"
		}
		k := old.DeepCopy()
		if r.IntN(3) > 0 {
			k.Spec.EphemeralContainers = append(k.Spec.EphemeralContainers,
				like(k.DeepCopy().Spec.Containers[r.IntN(2)], "more"))
		}
		what := alter(r, k, r.IntN(4), func(path string) bool {
			return strings.Contains(path, ".EphemeralContainers") || strings.HasPrefix(path, ".Spec") && r.IntN(20) == 0
		})
		theirs := ask[made[*v1.Pod]](t, "pod-ephemeral-containers", k, old)
		p, o := ourPod(t, k), ourPod(t, old)
		next := ephemeral.Apply(p, o).(*corev1.Pod)
		keep(next.Metadata, o.Metadata)
		if report(t, what, compare(theirs.Faults, ourFaults(ourpod.ValidateEphemeral(next, o)))) {
			bad++
			continue
		}
		if len(theirs.Faults) > 0 {
			continue
		}
		alike++
		if want := ourPod(t, theirs.Object); !validation.Equal(next.Spec, want.Spec) {
			t.Errorf("after %v:\nstored %v\nwant   %v", what, next.Spec.EphemeralContainers, want.Spec.EphemeralContainers)
			bad++
		}
	}
	if alike < *count/20 {
		t.Errorf("only %d of %d changes were valid", alike, *count)
	}
}

// spec: LIFE-3, QOS-1
func TestPodStatusUpdatesAreJudgedAlike(t *testing.T) {
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old := storedPod(t, false)
		old.Spec.NodeName = "n"
		old.Status.Phase = v1.PodRunning
		old.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue},
			{Type: "example.com/g", Status: v1.ConditionTrue}}
		ended := func(name string, code int32) v1.ContainerStatus {
			return v1.ContainerStatus{Name: name,
				State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}}
		}
		old.Status.ContainerStatuses = []v1.ContainerStatus{ended("app", 1), ended("second", 0)}
		old.Status.InitContainerStatuses = []v1.ContainerStatus{ended("init", 0), ended("side", 2)}
		old.Status.EphemeralContainerStatuses = []v1.ContainerStatus{ended("e", 0)}
		old.Status.PodIP, old.Status.PodIPs = "10.0.0.1", []v1.PodIP{{IP: "10.0.0.1"}, {IP: "::1"}}
		old.Status.HostIP, old.Status.HostIPs = "10.0.0.2", []v1.HostIP{{IP: "10.0.0.2"}}
		old.Status.ContainerStatuses[0].User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: 1,
			SupplementalGroups: []int64{1}}}
		old.Status.ContainerStatuses[0].AllocatedResourcesStatus = []v1.ResourceStatus{{Name: "cpu",
			Resources: []v1.ResourceHealth{{ResourceID: "a", Health: "Healthy", Message: ptr("m")}}}}

		k := old.DeepCopy()
		what := alter(r, &k.Status, 1+r.IntN(4), func(path string) bool {
			for _, s := range []string{
				// Device claims are refused; phases have rules of their own (LIFE-1); a class is kept when absent.
				"ResourceClaim", "ExtendedResource", ".Phase", ".QOSClass", ".NodeAllocatable", ".VolumeMounts",
				".StartedAt", ".FinishedAt", ".LastProbeTime", ".LastTransitionTime", ".StartTime",
			} {
				if strings.Contains(path, s) {
					return false
				}
			}
			return true
		})
		errs := ask[faults](t, "pod-statuses", k, old)
		p, o := ourPod(t, k), ourPod(t, old)
		ourpod.DefaultStatus(p.Status)
		if report(t, what, compare(errs, ourFaults(ourpod.ValidateStatusUpdate(p, o)))) {
			bad++
		}
	}
}
