package monoplane_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"monoplane.dev"
	batchv1 "monoplane.dev/api/batch/v1"
	batchv1rpc "monoplane.dev/api/batch/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
)

// Of the pods of UsedRuntime it is told what they use although no annotation says it.
func TestUseOfPodsThatSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, monoplane.Config{Runtime: monoplane.UsedRuntime(time.Second)})
		p := newPod("p")
		p.Metadata.Annotations = map[string]string{"fake.monoplane.dev/memory": "64Mi"}
		create(t, c.Client(), p)
		create(t, c.Client(), newPod("q"))
		time.Sleep(time.Minute)
		pods, err := c.Client().PodMetrics.List(t.Context(), &metav1.ListRequest{Namespace: "default"})
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for _, m := range pods.GetItems() {
			used := m.GetContainers()[0].GetUsage()
			got += fmt.Sprintln(m.GetMetadata().GetName(), used["cpu"].GetString_(), used["memory"].GetString_())
		}
		if want := "p 1m 64Mi\nq 1m 1Mi\n"; got != want {
			t.Errorf("used is\n%s\nwant\n%s", got, want)
		}
	})
}

// What is to end by itself does with UsedRuntime, and what is not does not: pods come to life after their init
// containers, and Jobs are done. With FakeRuntime it does when an annotation says so.
func TestWhatEndsByItself(t *testing.T) {
	for name, c := range map[string]struct {
		runtime monoplane.Runtime
		said    map[string]string
		want    string
	}{
		"for people": {monoplane.UsedRuntime(time.Second), nil, "job Succeeded, pod Running 1, plain Running"},
		"annotations win": {monoplane.UsedRuntime(time.Second), map[string]string{"fake.monoplane.dev/exit-after.main": "1h"},
			"job Running, pod Running 1, plain Running"},
		"for tests": {monoplane.FakeRuntime(), nil, "job Running, pod Pending 1, plain Running"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := start(t, monoplane.Config{Runtime: c.runtime}).Client()
				begun := newPod("pod")
				begun.Spec.InitContainers = []*corev1.Container{
					{Name: "side", Image: "host", RestartPolicy: new("Always")}, {Name: "first", Image: "host"},
				}
				begun.Metadata.Annotations = c.said
				create(t, api, begun)
				create(t, api, newPod("plain"))
				of := newPod("").Spec
				of.RestartPolicy = "Never"
				_, err := api.Jobs.Create(t.Context(), &batchv1rpc.CreateJobRequest{Object: &batchv1.Job{
					Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "job"},
					Spec: &batchv1.JobSpec{Template: &corev1.PodTemplateSpec{
						Metadata: &metav1.ObjectMeta{Annotations: c.said}, Spec: of}},
				}})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				pods, err := api.Pods.List(t.Context(), &metav1.ListRequest{Namespace: "default"})
				if err != nil {
					t.Fatal(err)
				}
				phases := map[string]string{}
				for _, p := range pods.GetItems() {
					name, _, _ := strings.Cut(p.GetMetadata().GetName(), "-")
					phases[name] = p.GetStatus().GetPhase()
					if name == "pod" {
						sidecars := 0
						for _, s := range p.GetStatus().GetInitContainerStatuses() {
							if s.GetName() == "side" && s.GetState().GetRunning() != nil && s.GetRestartCount() == 0 {
								sidecars++
							}
						}
						phases[name] += fmt.Sprint(" ", sidecars)
					}
				}
				got := fmt.Sprintf("job %s, pod %s, plain %s", phases["job"], phases["pod"], phases["plain"])
				if got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
			})
		})
	}
}

// Simulated nodes use what the annotations of their pods say, while their agents answer.
func TestWhatSimulatedNodesUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, monoplane.Config{Nodes: 2})
		api := c.Client()
		for i, said := range []map[string]string{
			{"fake.monoplane.dev/cpu": "250m", "fake.monoplane.dev/memory": "64Mi"},
			{"fake.monoplane.dev/cpu": "1", "fake.monoplane.dev/cpu.other": "500m", "fake.monoplane.dev/memory.main": "1Gi"},
			nil,
		} {
			p := newPod(fmt.Sprint("p", i))
			p.Metadata.Annotations, p.Spec.NodeName = said, "node-0"
			if i == 1 {
				p.Spec.Containers = append(p.Spec.Containers, &corev1.Container{Name: "other", Image: "host"})
			}
			create(t, api, p)
		}
		time.Sleep(time.Minute)
		top := func() string {
			t.Helper()
			var out string
			nodes, err := api.NodeMetrics.List(t.Context(), &metav1.ListRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range nodes.GetItems() {
				used := n.GetUsage()
				out += fmt.Sprintln(n.GetMetadata().GetName(), used["cpu"].GetString_(), used["memory"].GetString_())
			}
			pods, err := api.PodMetrics.List(t.Context(), &metav1.ListRequest{Namespace: "default"})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range pods.GetItems() {
				for _, c := range p.GetContainers() {
					out += fmt.Sprintln(p.GetMetadata().GetName(), c.GetName(), c.GetUsage()["cpu"].GetString_(),
						c.GetUsage()["memory"].GetString_())
				}
			}
			return out
		}
		const want = `node-0 1750m 1088Mi
node-1 0 0
p0 main 250m 64Mi
p1 main 1 1Gi
p1 other 500m 0
`
		if got := top(); got != want {
			t.Errorf("used is\n%s\nwant\n%s", got, want)
		}
		if _, err := c.StopNode(t.Context(), "node-0"); err != nil {
			t.Fatal(err)
		}
		if got := top(); got != "node-1 0 0\n" {
			t.Errorf("without the agent of node-0, used is\n%s", got)
		}
		_, err := api.PodMetrics.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "p0"})
		if !apierrors.Is(err, apierrors.NotFound) {
			t.Errorf("p0: %v", err)
		}
	})
}
