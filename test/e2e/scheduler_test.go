package e2e_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pods choose a profile of examples/scheduler.yaml by name: one fills a node, the other spreads over all.
// spec: SCHED-1
func TestProfiles(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--runtime", "fake", "--nodes", "4", "--scheduler-config", example(t, "scheduler.yaml"))
	p := c.pods(t, "default")
	nodes, err := c.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	room := nodes.Items[0].Status.Allocatable
	tenth := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(room.Cpu().MilliValue()/10, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(room.Memory().Value()/10, resource.BinarySI),
	}
	place := func(scheduler string) map[string]int {
		used := map[string]int{}
		for i := range 4 {
			pod := sleeper(fmt.Sprintf("%s-%d", scheduler, i))
			pod.Spec.SchedulerName = scheduler
			pod.Spec.Containers[0].Image = "nginx" // Nothing is pulled.
			pod.Spec.Containers[0].Resources.Requests = tenth
			p.create(t, pod)
			used[p.untilPhase(t, pod.Name, corev1.PodRunning).Spec.NodeName]++
		}
		return used
	}
	if used := place("packing"); len(used) != 1 {
		t.Errorf("packing uses %v", used)
	}
	if used := place("default-scheduler"); len(used) < 3 {
		t.Errorf("default-scheduler uses %v", used)
	}
}
