package pod_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/kinds/core/pod"
	"monoplane.dev/apiserver/kinds/test/kindtest"

	corev1 "monoplane.dev/api/core/v1"
)

// spec: OBJ-10
func TestPodResize(t *testing.T) {
	asks := func(requests, limits string) *corev1.ResourceRequirements {
		r := &corev1.ResourceRequirements{}
		if requests != "" {
			r.Requests = kindtest.Amounts("cpu", requests, "memory", requests)
		}
		if limits != "" {
			r.Limits = kindtest.Amounts("cpu", limits, "memory", limits)
		}
		return r
	}
	running := func(resources *corev1.ResourceRequirements) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = asks("1", "2")
			p.Status = &corev1.PodStatus{ContainerStatuses: []*corev1.ContainerStatus{{
				Name: "a", State: &corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, Resources: resources,
			}}}
		}
	}
	burstable := func(p *corev1.Pod) { p.Spec.Containers[0].Resources = asks("1", "2") }
	guaranteed := func(p *corev1.Pod) {
		for _, c := range p.Spec.Containers {
			c.Resources = asks("1", "1")
		}
	}
	sidecar := func(p *corev1.Pod) {
		burstable(p)
		p.Spec.InitContainers = []*corev1.Container{{Name: "i", Image: "i", Resources: asks("1", "2")}}
	}
	whole := func(p *corev1.Pod) {
		burstable(p)
		p.Spec.Resources = asks("4", "8")
	}
	for _, c := range []struct {
		name        string
		old, change func(*corev1.Pod)
		want        []string
	}{
		{"nothing", burstable, func(*corev1.Pod) {}, nil},
		{"more", burstable, func(p *corev1.Pod) { p.Spec.Containers[0].Resources = asks("3", "4") }, nil},
		{"less", burstable, func(p *corev1.Pod) { p.Spec.Containers[0].Resources = asks("500m", "1") }, nil},
		{"added", burstable, func(p *corev1.Pod) { p.Spec.Containers[1].Resources = asks("500m", "1") }, nil},
		{"both of a guaranteed pod", guaranteed, func(p *corev1.Pod) { p.Spec.Containers[0].Resources = asks("2", "2") },
			nil},
		{"a guaranteed pod becomes burstable", guaranteed,
			func(p *corev1.Pod) { p.Spec.Containers[0].Resources = asks("1", "2") },
			[]string{"Invalid spec"}},
		{"a pod that asked for nothing", nil, func(p *corev1.Pod) { p.Spec.Containers[0].Resources = asks("1", "2") },
			[]string{"Invalid spec"}},
		{"requests above limits", burstable, func(p *corev1.Pod) { p.Spec.Containers[0].Resources = asks("3", "2") },
			[]string{"Invalid spec.containers[0].resources.requests", "Invalid spec.containers[0].resources.requests"}},
		{"limits removed", burstable, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = nil },
			[]string{"Forbidden spec.containers[0].resources.limits"}},
		{"a request removed", burstable, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = kindtest.Amounts("cpu", "2")
			delete(p.Spec.Containers[0].Resources.Requests, "memory")
		}, []string{"Forbidden spec.containers[0].resources.requests", "Forbidden spec.containers[0].resources.limits"}},
		{"other resources", burstable, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits["example.com/gpu"] = kindtest.Amounts("x", "1")["x"]
			p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = kindtest.Amounts("x", "1")["x"]
		}, []string{"Forbidden spec"}},
		{"the policy", burstable, func(p *corev1.Pod) {
			p.Spec.Containers[0].ResizePolicy = []*corev1.ContainerResizePolicy{{ResourceName: "cpu",
				RestartPolicy: "NotRequired"}}
		}, []string{"Forbidden spec"}},
		{"a container more", burstable, func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, &corev1.Container{Name: "e", Image: "i"})
		}, []string{"Forbidden spec.containers"}},
		{"another name", burstable, func(p *corev1.Pod) { p.Spec.Containers[1].Name = "other" },
			[]string{"Forbidden spec.containers[1].name"}},
		{"init container", sidecar, func(p *corev1.Pod) { p.Spec.InitContainers[0].Resources = asks("2", "4") }, nil},
		{"init container that would restart", func(p *corev1.Pod) {
			sidecar(p)
			p.Spec.InitContainers[0].ResizePolicy = []*corev1.ContainerResizePolicy{{ResourceName: "cpu",
				RestartPolicy: "RestartContainer"}}
		}, func(p *corev1.Pod) { p.Spec.InitContainers[0].Resources = asks("2", "4") },
			[]string{"Invalid spec.initContainers[0].resizePolicy[0].restartPolicy", "Forbidden spec.initContainers[0]"}},
		{"other resources of an init container", sidecar, func(p *corev1.Pod) {
			p.Spec.InitContainers[0].Resources.Limits["example.com/gpu"] = kindtest.Amounts("x", "1")["x"]
			p.Spec.InitContainers[0].Resources.Requests["example.com/gpu"] = kindtest.Amounts("x", "1")["x"]
		}, []string{"Forbidden spec.initContainers[0]"}},
		{"the pod as a whole", whole, func(p *corev1.Pod) { p.Spec.Resources = asks("5", "6") }, nil},
		{"the pod as a whole for the first time", burstable, func(p *corev1.Pod) { p.Spec.Resources = asks("4", "8") }, nil},
		{"the pod as a whole no more", whole, func(p *corev1.Pod) { p.Spec.Resources = nil },
			[]string{"Forbidden spec.resources"}},
		{"limits of the pod as a whole removed", whole, func(p *corev1.Pod) { p.Spec.Resources.Limits = nil },
			[]string{"Forbidden spec.resources.limits"}},
		{"huge pages of the pod as a whole", whole, func(p *corev1.Pod) {
			p.Spec.Resources.Limits["hugepages-2Mi"] = kindtest.Amounts("x", "4Mi")["x"]
			p.Spec.Resources.Requests["hugepages-2Mi"] = kindtest.Amounts("x", "4Mi")["x"]
		}, []string{"Forbidden spec"}},
		{"nothing for the pod as a whole", nil,
			func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{} }, []string{"Forbidden spec"}},
		{"runs on a node that says what it has", running(asks("1", "2")),
			func(p *corev1.Pod) { p.Spec.Containers[0].Resources = asks("3", "4") }, nil},
		{"runs on a node that does not", running(nil),
			func(p *corev1.Pod) { p.Spec.Containers[0].Resources = asks("3", "4") }, []string{"Forbidden spec"}},
		{"mirror", func(p *corev1.Pod) {
			burstable(p)
			p.Metadata.Annotations, p.Spec.NodeName = map[string]string{"kubernetes.io/config.mirror": "x"}, "n"
		}, func(p *corev1.Pod) { p.Spec.Containers[0].Resources = asks("3", "4") }, []string{"Forbidden "}},
		{"windows", func(p *corev1.Pod) { p.Spec.Os = &corev1.PodOS{Name: "windows"} }, func(*corev1.Pod) {},
			[]string{"Forbidden "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := newPod()
			if c.old != nil {
				c.old(old)
			}
			statuses := old.GetStatus().GetContainerStatuses()
			asCreated(old)
			old.Metadata.Uid, old.Status.ContainerStatuses = "uid", statuses
			p := proto.CloneOf(old)
			c.change(p)
			pod.Default(p)
			before, wasBefore := proto.Clone(p), proto.Clone(old)
			causes := pod.ValidateResize(p, old)
			if got, want := kindtest.Faults(causes), kindtest.Lines(c.want...); got != want {
				t.Errorf("faults:\n%swant:\n%s\n%v", got, want, causes)
			}
			if !proto.Equal(p, before) || !proto.Equal(old, wasBefore) {
				t.Error("validation changed a pod")
			}
		})
	}
}
