package nodeagent_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent/runtime/fake"
)

// lax is a runtime that cannot enforce what the containers of one name ask for, and says so.
type lax struct {
	*fake.Runtime

	name string
}

func (l lax) ContainerStatus(
	ctx context.Context, req *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	out, err := l.Runtime.ContainerStatus(ctx, req)
	if err == nil && out.GetStatus().GetMetadata().GetName() == l.name {
		out.Info = map[string]string{"warnings": `["the memory limit is not enforced: nobody may","the cpu limit is not"]`}
	}
	return out, err
}

// What a runtime says that it cannot enforce is an event of the pod, once for each start, and none of others.
//
// spec: CTR-10
func TestUnenforcedLimitsAreEvents(t *testing.T) {
	recording(t, func(w *world) {
		w.cri.Stop()
		w.cri = inproc.NewServer(nil, nil)
		runtimeapi.RegisterRuntimeServiceServer(w.cri, lax{w.rt, "lax"})
		runtimeapi.RegisterImageServiceServer(w.cri, w.rt)
		conn := w.cri.Conn()
		w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
		w.start()
		w.create("a", containers("lax", "other"))
		time.Sleep(2 * beat)
		var got []string
		for _, e := range w.events() {
			if strings.HasPrefix(e, "NotEnforced: ") {
				got = append(got, e)
			}
		}
		slices.Sort(got)
		want := []string{"NotEnforced: Container lax: the cpu limit is not",
			"NotEnforced: Container lax: the memory limit is not enforced: nobody may"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// What no pod can do on a node is an event of the node; where they can do everything, there is none.
//
// spec: NET-1
func TestLimitsOfTheNodeAreAnEvent(t *testing.T) {
	for _, limits := range [][]string{nil, {"Pods cannot ping.", "They have one user."}} {
		recording(t, func(w *world) {
			w.cfg.Limits = limits
			w.start()
			time.Sleep(2 * beat)
			var got, want []string
			for _, e := range w.events() {
				if strings.HasPrefix(e, "NotEnforced: ") {
					got = append(got, e)
				}
			}
			if limits != nil {
				want = []string{"NotEnforced: Pods cannot ping. They have one user."}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// limiter is a runtime that limits pods as a whole by itself, but not those of one name.
type limiter struct {
	*fake.Runtime

	refused string

	mu   sync.Mutex
	told map[string]string // By the name of the pod: its limits of processor time and memory.
}

func (l *limiter) Status(ctx context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	out, err := l.Runtime.Status(ctx, req)
	if err == nil {
		out.Info = map[string]string{"limits_pods": "cgroup"}
	}
	return out, err
}

func (l *limiter) UpdatePodSandboxResources(
	ctx context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	got, err := l.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: req.GetPodSandboxId()})
	if err != nil {
		return nil, err
	}
	name := got.GetStatus().GetMetadata().GetName()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[name] = fmt.Sprint(req.GetResources().GetCpuQuota(), " ", req.GetResources().GetMemoryLimitInBytes())
	if name == l.refused {
		return nil, status.Error(codes.FailedPrecondition, "the memory limit is not enforced: nobody may")
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// A runtime that limits pods as a whole is told what they may use, when they start and when they are resized; what it
// cannot do is an event of the pod.
//
// spec: INIT-8, OBJ-10
func TestPodsAreLimitedByTheirRuntime(t *testing.T) {
	resizing(t, func(w *world) {
		l := &limiter{Runtime: w.rt, refused: "refused", told: map[string]string{}}
		w.cri.Stop()
		w.cri = inproc.NewServer(nil, nil)
		runtimeapi.RegisterRuntimeServiceServer(w.cri, l)
		runtimeapi.RegisterImageServiceServer(w.cri, w.rt)
		conn := w.cri.Conn()
		w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
		w.start()
		w.create("limited", limits("cpu", "1", "memory", "64Mi"))
		w.create("free")
		w.create("refused", limits("cpu", "1", "memory", "64Mi"))
		w.settle()
		w.resize("limited", "cpu", "2", "memory", "64Mi")
		want := map[string]string{"limited": "200000 67108864", "free": "0 0", "refused": "100000 67108864"}
		l.mu.Lock()
		if !maps.Equal(l.told, want) {
			t.Errorf("it was told %v, want %v", l.told, want)
		}
		l.mu.Unlock()
		n := 0
		for _, e := range w.events() {
			if strings.HasPrefix(e, "NotEnforced: ") {
				n++
				if !strings.Contains(e, "the pod as a whole are not enforced") || !strings.Contains(e, "nobody may") {
					t.Errorf("the event is %q", e)
				}
			}
		}
		if n != 1 {
			t.Errorf("%d events, want one of the refused pod", n)
		}
	})
}

// cgroupless is a runtime that cannot enforce a limit of 128 MiB, neither of a container nor of a pod.
type cgroupless struct {
	*fake.Runtime
}

const (
	unlimitable = 128 << 20
	noCgroup    = "the memory limit is not enforced: no cgroup"
)

func (c cgroupless) Status(ctx context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	out, err := c.Runtime.Status(ctx, req)
	if err == nil {
		out.Info = map[string]string{"limits_pods": "cgroup"}
	}
	return out, err
}

func (c cgroupless) ContainerStatus(
	ctx context.Context, req *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	out, err := c.Runtime.ContainerStatus(ctx, req)
	if err == nil && out.GetStatus().GetResources().GetLinux().GetMemoryLimitInBytes() == unlimitable {
		out.Info = map[string]string{"warnings": `["` + noCgroup + `"]`}
	}
	return out, err
}

func (cgroupless) UpdatePodSandboxResources(
	_ context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	if req.GetResources().GetMemoryLimitInBytes() == unlimitable {
		return nil, status.Error(codes.Unimplemented, noCgroup)
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// Limits for which there is no cgroup are accepted in a resize as they are at the start, and events of the pod say
// that they are not enforced.
//
// spec: OBJ-10, CTR-10
func TestResizeWithoutCgroups(t *testing.T) {
	resizing(t, func(w *world) {
		w.cri.Stop()
		w.cri = inproc.NewServer(nil, nil)
		runtimeapi.RegisterRuntimeServiceServer(w.cri, cgroupless{w.rt})
		runtimeapi.RegisterImageServiceServer(w.cri, w.rt)
		conn := w.cri.Conn()
		w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
		w.start()
		w.create("a", limits("cpu", "1", "memory", "64Mi"))
		w.settle()
		if got := w.told("a", "NotEnforced"); len(got) > 0 {
			t.Errorf("told %q at the start", got)
		}
		w.resize("a", "cpu", "2", "memory", "128Mi")
		w.expectHas("a", "2/2/2")
		s := w.get("a").GetStatus().GetContainerStatuses()[0]
		if got := s.GetResources().GetLimits()["memory"].GetString_(); got != "128Mi" {
			t.Errorf("the limit is said to be %s", got)
		}
		got := w.told("a", "NotEnforced")
		slices.Sort(got)
		want := []string{"Container main: " + noCgroup,
			"The limits of the pod as a whole are not enforced, only those of each container: " + noCgroup}
		if !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		if got := w.told("a", "ResizeError"); len(got) > 0 {
			t.Errorf("told %q", got)
		}
	})
}

// The runtime is told how much a container may write before its pod is evicted for it. Nobody is evicted for what an
// init container writes, nor is a critical pod.
//
// spec: QOS-2
func TestLimitsOfStorage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		most := limits("ephemeral-storage", "1Mi")
		w.create("limited", most, annotated("exit-after.init", "1s"), edit(func(p *corev1.Pod) {
			p.Spec.InitContainers = []*corev1.Container{
				{Name: "init", Image: "host", Resources: p.Spec.Containers[0].Resources},
			}
		}))
		w.create("critical", most, edit(func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }))
		w.create("free")
		time.Sleep(5 * time.Second)
		list, err := w.rt.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range list.GetContainers() {
			limit := c.GetAnnotations()["monoplane.dev/ephemeral-storage-limit"]
			got = append(got, c.GetLabels()["io.kubernetes.pod.name"]+"/"+c.GetMetadata().GetName()+":"+limit)
		}
		slices.Sort(got)
		want := []string{"critical/main:", "free/main:", "limited/init:", "limited/main:1048576"}
		if !slices.Equal(got, want) {
			t.Errorf("limits %v, want %v", got, want)
		}
	})
}
