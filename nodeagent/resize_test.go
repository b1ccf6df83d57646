package nodeagent_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
	"monoplane.dev/client/record"
	"monoplane.dev/object"
)

// limits has the first container request and be limited to amounts, such as "cpu", "1".
func limits(pairs ...string) podOption {
	return edit(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = &corev1.ResourceRequirements{Requests: quantities(pairs), Limits: quantities(pairs)}
	})
}

func quantities(pairs []string) map[string]*metav1.Quantity {
	m := make(map[string]*metav1.Quantity)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &metav1.Quantity{String_: pairs[i+1]}
	}
	return m
}

// recording runs f in a world whose events can be read.
func recording(t *testing.T, f func(w *world)) {
	t.Helper()
	inWorld(t, func(w *world) {
		recorder := record.New(record.Config{Events: w.c.Events, Controller: "kubelet", Instance: nodeName})
		ctx, stop := context.WithCancel(w.t.Context())
		ended := make(chan error, 1)
		go func() { ended <- recorder.Run(ctx) }()
		defer func() { stop(); <-ended }()
		w.cfg.Recorder = recorder
		f(w)
	})
}

// resizing runs f in a world with 16 processors for pods, whose events can be read.
func resizing(t *testing.T, f func(w *world)) {
	t.Helper()
	recording(t, func(w *world) {
		w.cfg.SystemReserved = map[string]string{"cpu": "16"}
		f(w)
	})
}

// resize has the first container of a pod ask for other amounts.
func (w *world) resize(name string, pairs ...string) {
	w.t.Helper()
	p := object.Clone(w.get(name))
	limits(pairs...)(p)
	if _, err := w.c.Pods.UpdateResize(context.Background(), &corev1rpc.UpdatePodRequest{Object: p}); err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

// has describes what the first container of a pod asks for, was granted and has, and what the pod says of it, in cpu.
func (w *world) has(name string) string {
	w.t.Helper()
	p := w.get(name)
	s := p.GetStatus().GetContainerStatuses()[0]
	out := fmt.Sprintf("%s/%s/%s", p.GetSpec().GetContainers()[0].GetResources().GetRequests()["cpu"].GetString_(),
		s.GetAllocatedResources()["cpu"].GetString_(), s.GetResources().GetLimits()["cpu"].GetString_())
	for _, kind := range []string{"PodResizePending", "PodResizeInProgress"} {
		if c := cond(p, kind); c != nil {
			out += fmt.Sprintf(" %s(%s)@%d", strings.TrimPrefix(kind, "PodResize"), c.GetReason(), c.GetObservedGeneration())
		}
	}
	return out
}

// expectHas waits for a second, in which everything that can happen at once does, and compares.
func (w *world) expectHas(name, want string) {
	w.t.Helper()
	time.Sleep(time.Second)
	w.settle()
	if got := w.has(name); got != want {
		w.t.Errorf("%s: %s, want %s", name, got, want)
	}
}

// shares returns what the runtime has given the first container of a pod.
func (w *world) given(name string) *runtimeapi.LinuxContainerResources {
	w.t.Helper()
	_, id, _ := strings.Cut(w.get(name).GetStatus().GetContainerStatuses()[0].GetContainerID(), "://")
	got, err := w.rt.ContainerStatus(context.Background(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		w.t.Fatal(err)
	}
	return got.GetStatus().GetResources().GetLinux()
}

// told returns the messages of the events of a pod with a reason.
func (w *world) told(pod, reason string) []string {
	w.t.Helper()
	list, err := w.c.Events.List(context.Background(), &metav1.ListRequest{Namespace: "default"})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, e := range list.GetItems() {
		if e.GetInvolvedObject().GetName() == pod && e.GetReason() == reason {
			out = append(out, e.GetMessage())
		}
	}
	return out
}

// A running container gets other amounts without being restarted. spec: OBJ-10, CTR-10
func TestResizeInPlace(t *testing.T) {
	resizing(t, func(w *world) {
		w.start()
		w.create("a", limits("cpu", "1", "memory", "64Mi"))
		w.settle()
		w.expectHas("a", "1/1/1")
		w.resize("a", "cpu", "2", "memory", "128Mi")
		w.expectHas("a", "2/2/2")
		if r := w.given("a"); r.GetCpuShares() != 2048 || r.GetCpuQuota() != 200000 || r.GetMemoryLimitInBytes() != 128<<20 {
			t.Errorf("the runtime has given %v", r)
		}
		w.expect("a", "START main/0 @0s")
		p := w.get("a")
		if p.GetStatus().GetObservedGeneration() != 2 || p.GetMetadata().GetGeneration() != 2 {
			t.Errorf("generation %d, observed %d", p.GetMetadata().GetGeneration(), p.GetStatus().GetObservedGeneration())
		}
		for reason, what := range map[string]string{"ResizeStarted": "started", "ResizeCompleted": "completed"} {
			want := "Pod resize " + what + ": " +
				`{"containers":[{"name":"main","resources":{"limits":{"cpu":"2","memory":"128Mi"},` +
				`"requests":{"cpu":"2","memory":"128Mi"}}}],"generation":2}`
			if got := w.told("a", reason); len(got) != 1 || got[0] != want {
				t.Errorf("%s: %q, want %q", reason, got, want)
			}
		}
	})
}

// What there is no room for is deferred, and granted when there is, to the most important pod first; what asks for
// less needs no room. spec: OBJ-10, SCHED-4
func TestResizeDeferred(t *testing.T) {
	resizing(t, func(w *world) {
		w.start()
		w.create("a", limits("cpu", "2"))
		w.create("b", limits("cpu", "2"))
		w.create("c", limits("cpu", "10"))
		w.settle()
		w.resize("a", "cpu", "8")
		w.expectHas("a", "8/2/2 Pending(Deferred)@2")
		want := "Node didn't have enough resource: cpu, requested: 8000, used: 12000, capacity: 16000"
		if got := cond(w.get("a"), "PodResizePending").GetMessage(); got != want {
			t.Errorf("deferred: %q, want %q", got, want)
		}
		if got := w.told("a", "ResizeDeferred"); len(got) != 1 || !strings.HasPrefix(got[0], "Pod resize OutOfcpu: {") {
			t.Errorf("told %q", got)
		}
		w.resize("c", "cpu", "8") // less: at once, and that is room for nobody
		w.expectHas("c", "8/8/8")
		w.expectHas("a", "8/2/2 Pending(Deferred)@2")
		w.delete("c", 1)
		w.settle()
		w.expectHas("a", "8/8/8")
	})
}

// Of those that wait, the most important ones come first. spec: OBJ-10, PRIO-2
func TestResizeOrder(t *testing.T) {
	resizing(t, func(w *world) {
		for name, value := range map[string]int32{"low": 1, "high": 1000} {
			_, err := w.c.PriorityClasses.Create(w.t.Context(), &schedulingv1rpc.CreatePriorityClassRequest{
				Object: &schedulingv1.PriorityClass{Metadata: &metav1.ObjectMeta{Name: name}, Value: value}})
			if err != nil {
				t.Fatal(err)
			}
		}
		w.start()
		class := func(name string) podOption {
			return edit(func(p *corev1.Pod) { p.Spec.PriorityClassName = name })
		}
		w.create("low", limits("cpu", "1"), class("low"))
		w.create("high", limits("cpu", "1"), class("high"))
		w.create("other", limits("cpu", "14"))
		w.settle()
		w.resize("low", "cpu", "10")
		w.resize("high", "cpu", "10")
		w.expectHas("high", "10/1/1 Pending(Deferred)@2")
		w.delete("other", 1)
		w.settle()
		w.expectHas("high", "10/10/10")
		w.expectHas("low", "10/1/1 Pending(Deferred)@2")
		w.resize("high", "cpu", "2") // which makes room
		w.expectHas("low", "10/10/10")
	})
}

// A limit of memory below what is used is not set; it is tried until it can be, and the container goes on.
// spec: OBJ-10
func TestResizeBelowUsage(t *testing.T) {
	resizing(t, func(w *world) {
		w.start()
		w.create("a", limits("cpu", "1", "memory", "128Mi"), annotated("memory", "96Mi"))
		w.settle()
		w.resize("a", "cpu", "1", "memory", "64Mi")
		w.expectHas("a", "1/1/1 InProgress(Error)@2")
		want := `cannot decrease memory limits: attempting to set container "main" memory limit (67108864) below current ` +
			`usage (100663296)`
		if got := cond(w.get("a"), "PodResizeInProgress").GetMessage(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := w.told("a", "ResizeError"); len(got) != 1 {
			t.Errorf("told %q", got)
		}
		if got := w.given("a").GetMemoryLimitInBytes(); got != 128<<20 {
			t.Errorf("the limit is %d", got)
		}
		s := w.get("a").GetStatus().GetContainerStatuses()[0]
		if got := s.GetResources().GetLimits()["memory"].GetString_(); got != "128Mi" {
			t.Errorf("the limit is said to be %s", got)
		}
		w.resize("a", "cpu", "1", "memory", "100Mi")
		w.expectHas("a", "1/1/1")
		w.expect("a", "START main/0 @0s")
	})
}

// A container whose policy says so is restarted, with its grace, at once and without counting as a failure.
// spec: OBJ-10, CTR-3
func TestResizeByRestart(t *testing.T) {
	resizing(t, func(w *world) {
		w.start()
		w.create("a", containers("main", "other"), limits("cpu", "1"), annotated("stop-after", "5s", "stop-code", "0"),
			edit(func(p *corev1.Pod) {
				p.Spec.Containers[0].ResizePolicy = []*corev1.ContainerResizePolicy{
					{ResourceName: "cpu", RestartPolicy: "RestartContainer"}}
			}))
		w.settle()
		w.resize("a", "cpu", "2")
		time.Sleep(time.Minute)
		w.expectHas("a", "2/2/2")
		p := w.get("a")
		if n := p.GetStatus().GetContainerStatuses()[0].GetRestartCount(); n != 1 || w.given("a").GetCpuQuota() != 200000 {
			t.Errorf("restarted %d times, has %v", n, w.given("a"))
		}
		var starts []string
		for _, s := range w.signals("a") {
			if strings.HasPrefix(s, "START other") || strings.HasPrefix(s, "TERM other") {
				starts = append(starts, s)
			}
		}
		if len(starts) != 1 {
			t.Errorf("the other container: %q", starts)
		}
		if got := w.told("a", "Killing"); len(got) != 1 || got[0] != "Container main resize requires restart" {
			t.Errorf("told %q", got)
		}
	})
}

// A runtime that fails, or does not answer for long, holds up nothing but the resize. spec: OBJ-10
func TestResizeWhileTheRuntimeFails(t *testing.T) {
	resizing(t, func(w *world) {
		w.start()
		w.create("a", limits("cpu", "1"))
		w.settle()
		release := make(chan struct{})
		calls := 0
		w.setFault(func(method, _ string) error {
			if method != "UpdateContainerResources" {
				return nil
			}
			switch calls++; calls {
			case 1:
				return errors.New("not now")
			case 2:
				w.mu.Unlock() // others are not held up
				<-release
				w.mu.Lock()
			}
			return nil
		})
		w.resize("a", "cpu", "2")
		w.expectHas("a", "2/2/1 InProgress(Error)@2")
		time.Sleep(10 * time.Second) // it hangs
		w.expectHas("a", "2/2/1 InProgress(Error)@2")
		w.resize("a", "cpu", "3")
		w.expectHas("a", "3/3/1 InProgress()@3")
		close(release)
		time.Sleep(time.Minute)
		w.expectHas("a", "3/3/3")
		if got := w.given("a").GetCpuQuota(); got != 300000 {
			t.Errorf("the runtime has given %d", got)
		}
		w.delete("a", 1)
		time.Sleep(10 * time.Second)
		w.empty()
	})
}

// An agent that comes back knows what it has granted, from its file or from the pod's status, whatever the pod asks
// for by then. spec: OBJ-10
func TestResizeIsKept(t *testing.T) {
	for _, files := range []bool{true, false} {
		t.Run(fmt.Sprint("files: ", files), func(t *testing.T) {
			resizing(t, func(w *world) {
				if files {
					w.cfg.PodsDir = filepath.Join(t.TempDir(), "pods")
				}
				w.start()
				w.create("a", limits("cpu", "1"))
				w.create("b", limits("cpu", "9"))
				w.settle()
				w.resize("a", "cpu", "3")
				w.expectHas("a", "3/3/3")
				w.setFault(func(method, _ string) error {
					if method == "UpdateContainerResources" {
						return errors.New("not now")
					}
					return nil
				})
				w.resize("a", "cpu", "5")
				w.expectHas("a", "5/5/3 InProgress(Error)@3")
				w.kill()
				p := object.Clone(w.get("a"))
				limits("cpu", "9")(p)
				if _, err := w.c.Pods.UpdateResize(w.t.Context(), &corev1rpc.UpdatePodRequest{Object: p}); err != nil {
					t.Fatal(err)
				}
				w.setFault(nil)
				w.start()
				w.settle()
				time.Sleep(time.Minute)
				want := "9/5/5 Pending(Deferred)@4"
				if !files {
					want = "9/5/3 Pending(Deferred)@4" // of what was not in force only the requests are known
				}
				w.expectHas("a", want)
				w.delete("b", 1)
				w.settle()
				w.expectHas("a", "9/9/9")
			})
		})
	}
}
