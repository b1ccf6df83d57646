package pod_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/kinds/core/pod"
	"monoplane.dev/apiserver/kinds/test/kindtest"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func requirement(key, value string) *corev1.NodeSelectorRequirement {
	return &corev1.NodeSelectorRequirement{Key: key, Operator: "In", Values: []string{value}}
}

func required(terms ...*corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

func term(r ...*corev1.NodeSelectorRequirement) *corev1.NodeSelectorTerm {
	return &corev1.NodeSelectorTerm{MatchExpressions: r}
}

// spec: OBJ-10
func TestPodUpdate(t *testing.T) {
	gate := []*corev1.PodSchedulingGate{{Name: "example.com/g"}, {Name: "example.com/h"}}
	for _, c := range []struct {
		name        string
		old, change func(*corev1.Pod)
		want        []string
	}{
		{"nothing", nil, func(*corev1.Pod) {}, nil},
		{"labels and annotations", nil, func(p *corev1.Pod) {
			p.Metadata.Labels, p.Metadata.Annotations = map[string]string{"x": "y"}, map[string]string{"a": "b"}
		}, nil},
		{"image", nil, func(p *corev1.Pod) { p.Spec.Containers[1].Image = "other:1" }, nil},
		{"image gone", nil, func(p *corev1.Pod) { p.Spec.Containers[1].Image = "" },
			[]string{"Required spec.containers[1].image"}},
		{"command", nil, func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"x"} }, []string{"Forbidden spec"}},
		{"several at once", nil, func(p *corev1.Pod) {
			p.Spec.Containers[0].Command = []string{"x"}
			p.Spec.HostNetwork = true
			p.Spec.RestartPolicy = "x"
			p.Metadata.Name = "q"
		}, []string{"Invalid metadata.name", "NotSupported spec.restartPolicy", "Forbidden spec"}},
		{"node", nil, func(p *corev1.Pod) { p.Spec.NodeName = "n" }, []string{"Forbidden spec"}},
		{"a container more", nil, func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, &corev1.Container{Name: "e", Image: "i"})
		}, []string{"Forbidden spec.containers"}},
		{"a container less, and other faults", nil, func(p *corev1.Pod) {
			p.Spec.Containers = p.Spec.Containers[:1]
			p.Spec.Tolerations = nil
		}, []string{"Forbidden spec.tolerations", "Forbidden spec.containers"}},
		{"deadline set", nil, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(5)) }, nil},
		{"deadline sooner", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(5)) },
			func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(4)) }, nil},
		{"deadline later", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(5)) },
			func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(6)) },
			[]string{"Invalid spec.activeDeadlineSeconds"}},
		{"deadline gone", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(5)) },
			func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil }, []string{"Invalid spec.activeDeadlineSeconds"}},
		{"toleration more", nil, func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, &corev1.Toleration{Key: "k", Operator: "Exists"})
		}, nil},
		{"toleration seconds", nil, func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = ptr(int64(1)) }, nil},
		{"toleration changed", nil, func(p *corev1.Pod) { p.Spec.Tolerations[0].Key = "k" },
			[]string{"Forbidden spec.tolerations"}},
		{"bad toleration added", nil, func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, &corev1.Toleration{Key: "a b", Operator: "Exists"})
		}, []string{"Invalid spec.tolerations[2].key"}},
		{"gate removed", func(p *corev1.Pod) { p.Spec.SchedulingGates = gate },
			func(p *corev1.Pod) { p.Spec.SchedulingGates = gate[1:] }, nil},
		{"gate added", func(p *corev1.Pod) { p.Spec.SchedulingGates = gate[1:] },
			func(p *corev1.Pod) { p.Spec.SchedulingGates = gate }, []string{"Forbidden spec.schedulingGates[0].name"}},
		{"node selector of a gated pod grows", func(p *corev1.Pod) {
			p.Spec.SchedulingGates, p.Spec.NodeSelector = gate, map[string]string{"a": "b"}
		}, func(p *corev1.Pod) { p.Spec.NodeSelector["c"] = "d" }, nil},
		{"node selector of a gated pod changes", func(p *corev1.Pod) {
			p.Spec.SchedulingGates, p.Spec.NodeSelector = gate, map[string]string{"a": "b"}
		}, func(p *corev1.Pod) { p.Spec.NodeSelector["a"] = "d" }, []string{"Invalid spec.nodeSelector"}},
		{"node selector of an ungated pod grows", nil,
			func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} }, []string{"Forbidden spec"}},
		{"affinity of a gated pod appears", func(p *corev1.Pod) { p.Spec.SchedulingGates = gate },
			func(p *corev1.Pod) { p.Spec.Affinity = required(term(requirement("a", "b"))) }, nil},
		{"affinity of a gated pod narrows", func(p *corev1.Pod) {
			p.Spec.SchedulingGates, p.Spec.Affinity = gate, required(term(requirement("a", "b")))
		}, func(p *corev1.Pod) { p.Spec.Affinity = required(term(requirement("a", "b"), requirement("c", "d"))) }, nil},
		{"affinity of a gated pod widens", func(p *corev1.Pod) {
			p.Spec.SchedulingGates, p.Spec.Affinity = gate, required(term(requirement("a", "b")))
		}, func(p *corev1.Pod) {
			p.Spec.Affinity = required(term(requirement("a", "b")), term(requirement("c", "d")))
		}, []string{"Invalid spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"}},
		{"pod affinity of a gated pod", func(p *corev1.Pod) { p.Spec.SchedulingGates = gate }, func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{{TopologyKey: "z"}}}}
		}, []string{"Forbidden spec"}},
		{"resources spelled differently", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = &corev1.ResourceRequirements{Limits: kindtest.Amounts("cpu", "1")}
		}, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = &corev1.ResourceRequirements{Limits: kindtest.Amounts("cpu", "1000m"),
				Requests: kindtest.Amounts("cpu", "1.0")}
		}, nil},
		{"resources changed", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = &corev1.ResourceRequirements{Limits: kindtest.Amounts("cpu", "1")}
		}, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = &corev1.ResourceRequirements{Limits: kindtest.Amounts("cpu", "2"),
				Requests: kindtest.Amounts("cpu", "1")}
		}, []string{"Forbidden spec"}},
		// spec: OBJ-5
		{"identity", nil, func(p *corev1.Pod) {
			p.Metadata.Namespace, p.Metadata.Uid = "other", "x"
			p.Metadata.DeletionTimestamp = &metav1.Time{Seconds: 5}
		}, []string{"Invalid metadata.namespace", "Invalid metadata.uid", "Invalid metadata.deletionTimestamp"}},
		// spec: DEL-6
		{"finalizer on a deleted pod", func(p *corev1.Pod) {
			p.Metadata.DeletionTimestamp, p.Metadata.Finalizers = &metav1.Time{Seconds: 5}, []string{"example.com/a"}
		}, func(p *corev1.Pod) { p.Metadata.Finalizers = append(p.Metadata.Finalizers, "example.com/b") },
			[]string{"Forbidden metadata.finalizers"}},
		{"finalizer removed from a deleted pod", func(p *corev1.Pod) {
			p.Metadata.DeletionTimestamp, p.Metadata.Finalizers = &metav1.Time{Seconds: 5}, []string{"example.com/a"}
		}, func(p *corev1.Pod) { p.Metadata.Finalizers = nil }, nil},
		{"mirror annotation", nil, func(p *corev1.Pod) {
			p.Metadata.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"}
		}, []string{"Invalid metadata.annotations[kubernetes.io/config.mirror]",
			"Forbidden metadata.annotations[kubernetes.io/config.mirror]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := newPod()
			if c.old != nil {
				c.old(old)
			}
			asCreated(old)
			old.Metadata.Uid, old.Metadata.CreationTimestamp = "uid", &metav1.Time{Seconds: 1}
			p := proto.CloneOf(old)
			c.change(p)
			pod.Default(p)
			before, wasBefore := proto.Clone(p), proto.Clone(old)
			causes := pod.ValidateUpdate(p, old)
			if got, want := kindtest.Faults(causes), kindtest.Lines(c.want...); got != want {
				t.Errorf("faults:\n%swant:\n%s", got, want)
			}
			if !proto.Equal(p, before) || !proto.Equal(old, wasBefore) {
				t.Error("validation changed a pod")
			}
		})
	}
}

func TestForbiddenPodUpdateNamesTheFields(t *testing.T) {
	old := newPod()
	asCreated(old)
	p := proto.CloneOf(old)
	p.Spec.Containers[1].Env = []*corev1.EnvVar{{Name: "A"}}
	p.Spec.HostIPC = true
	causes := pod.ValidateUpdate(p, old)
	if len(causes) != 1 || !strings.HasSuffix(causes[0].Message, "\nchanged: spec.containers[1].env, spec.hostIPC") {
		t.Errorf("causes %q", causes)
	}
}

// spec: LIFE-1, LIFE-10, LIFE-9
func TestPhasesOnlyGoForward(t *testing.T) {
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"Pending", "Pending", true}, {"Pending", "Running", true}, {"Pending", "Failed", true},
		{"Pending", "Succeeded", true},
		{"Running", "Succeeded", true}, {"Running", "Failed", true}, {"Running", "Pending", false},
		{"Succeeded", "Running", false},
		{"Succeeded", "Failed", false}, {"Failed", "Succeeded", false}, {"Failed", "Failed", true},
		{"Running", "Unknown", false},
		{"Running", "", false}, {"Running", "Odd", false}, {"Unknown", "Running", true}, {"", "Pending", true},
	} {
		old := newPod()
		asCreated(old)
		old.Status.Phase = c.from
		p := proto.CloneOf(old)
		p.Status.Phase = c.to
		if got := kindtest.Faults(pod.ValidateStatusUpdate(p, old)); (got == "") != c.ok || !c.ok &&
			!strings.Contains(got, " status.phase\n") {
			t.Errorf("from %q to %q: %q", c.from, c.to, got)
		}
	}
}

// spec: QOS-1, LIFE-2
func TestPodStatusUpdate(t *testing.T) {
	ended := &corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	for _, c := range []struct {
		name        string
		old, change func(*corev1.Pod)
		want        []string
	}{
		{"nothing", nil, func(*corev1.Pod) {}, nil},
		{"class", nil, func(p *corev1.Pod) { p.Status.QosClass = "Guaranteed" }, []string{"Invalid status.qosClass"}},
		{"conditions", nil, func(p *corev1.Pod) {
			p.Status.Conditions = []*corev1.PodCondition{{Type: "Ready"}, {Type: "a b", ObservedGeneration: -1}}
			p.Status.ObservedGeneration = -1
		}, []string{"Invalid status.conditions[1].observedGeneration", "Invalid status.conditions[1].Type",
			"Invalid status.observedGeneration"}},
		{"addresses", nil, func(p *corev1.Pod) {
			p.Status.PodIP, p.Status.PodIPs = "10.0.0.1", []*corev1.PodIP{{Ip: "10.0.0.1"}, {Ip: "10.0.0.2"}}
			p.Status.HostIP, p.Status.HostIPs = "10.0.0.3", []*corev1.HostIP{{Ip: "x"}}
		}, []string{"Invalid status.podIPs", "Invalid status.hostIPs[0].ip", "Invalid status.hostIPs[0]"}},
		{"an ended container comes back", func(p *corev1.Pod) { p.Spec.RestartPolicy = "Never" }, func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = &corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		}, []string{"Forbidden status.containerStatuses[0].state"}},
		{"an ended container is restarted", nil, func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = &corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		}, nil},
		{"nominated when bound", func(p *corev1.Pod) { p.Spec.NodeName = "n" }, func(p *corev1.Pod) {
			p.Status.NominatedNodeName = "A"
		}, []string{"Invalid status.nominatedNodeName", "Forbidden status.nominatedNodeName"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := newPod()
			if c.old != nil {
				c.old(old)
			}
			asCreated(old)
			old.Status.ContainerStatuses = []*corev1.ContainerStatus{{Name: "c", State: ended}}
			p := proto.CloneOf(old)
			c.change(p)
			pod.DefaultStatus(p.Status)
			if got, want := kindtest.Faults(pod.ValidateStatusUpdate(p, old)), kindtest.Lines(c.want...); got != want {
				t.Errorf("faults:\n%swant:\n%s", got, want)
			}
		})
	}
}
