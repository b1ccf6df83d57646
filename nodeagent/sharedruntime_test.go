package nodeagent_test

import (
	"context"
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
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/podcgroup"
	"monoplane.dev/nodeagent/runtime/fake"
)

// moody is a runtime that says of itself what a test wants, and remembers the last sandbox that it was asked for.
type moody struct {
	*fake.Runtime

	driver runtimeapi.CgroupDriver

	mu   sync.Mutex
	down error
	no   *runtimeapi.RuntimeCondition
	box  *runtimeapi.PodSandboxConfig
}

func (m *moody) Status(ctx context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down != nil {
		return nil, m.down
	}
	if m.no != nil {
		return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
			Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady, Status: true}, m.no}}}, nil
	}
	return m.Runtime.Status(ctx, req)
}

func (m *moody) RuntimeConfig(
	context.Context, *runtimeapi.RuntimeConfigRequest,
) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: m.driver}}, nil
}

func (m *moody) RunPodSandbox(
	ctx context.Context, req *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	m.mu.Lock()
	m.box = req.GetConfig()
	m.mu.Unlock()
	return m.Runtime.RunPodSandbox(ctx, req)
}

func (m *moody) is(down error, no *runtimeapi.RuntimeCondition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down, m.no = down, no
}

func (m *moody) sandbox() *runtimeapi.PodSandboxConfig {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.box
}

// makeMoody puts a moody runtime in the place of the world's.
func makeMoody(w *world, driver runtimeapi.CgroupDriver) *moody {
	w.cri.Stop()
	m := &moody{Runtime: w.rt, driver: driver}
	w.cri = inproc.NewServer(nil, nil)
	runtimeapi.RegisterRuntimeServiceServer(w.cri, m)
	runtimeapi.RegisterImageServiceServer(w.cri, m)
	conn := w.cri.Conn()
	w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	return m
}

// The node is Ready when its runtime and the runtime's network are. spec: NODE-1
func TestNodeIsAsReadyAsItsRuntime(t *testing.T) {
	inWorld(t, func(w *world) {
		m := makeMoody(w, runtimeapi.CgroupDriver_CGROUPFS)
		m.is(nil, &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Reason: "NoPlugin", Message: "no network yet"})
		w.start()
		ready := func(want, reason, message string) {
			t.Helper()
			for _, c := range w.node().GetStatus().GetConditions() {
				if c.GetType() != "Ready" {
					continue
				}
				if c.GetStatus() != want || c.GetReason() != reason || !strings.Contains(c.GetMessage(), message) {
					t.Errorf("Ready is %v, want %s, %s, %q", c, want, reason, message)
				}
				return
			}
			t.Error("there is no condition Ready")
		}
		ready("False", "KubeletNotReady", "NetworkReady=false (NoPlugin: no network yet)")
		m.is(nil, nil)
		time.Sleep(11 * time.Second)
		ready("True", "KubeletReady", "")
		m.is(status.Error(codes.Unavailable, "connection refused"), nil)
		time.Sleep(11 * time.Second)
		ready("False", "KubeletNotReady", "does not answer: connection refused")
	})
}

// Pods run in cgroups of their class; where systemd manages them, a runtime takes only slices. Once the sandbox is
// there systemd is told what the pod may use. spec: QOS-3
func TestCgroupParent(t *testing.T) {
	for driver, want := range map[runtimeapi.CgroupDriver]string{
		runtimeapi.CgroupDriver_SYSTEMD:  "monoplane-besteffort-podUID.slice",
		runtimeapi.CgroupDriver_CGROUPFS: "/monoplane/besteffort/podUID",
	} {
		inWorld(t, func(w *world) {
			m := makeMoody(w, driver)
			var mu sync.Mutex
			var told []string
			w.cfg.Simulated, w.cfg.Cgroups = false, func(systemd bool) *podcgroup.Groups {
				if !systemd {
					return podcgroup.New(t.TempDir(), nil)
				}
				return podcgroup.New(t.TempDir(), func(_ context.Context, args ...string) error {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, args[2])
					return nil
				})
			}
			w.start()
			uid := w.create("a").GetMetadata().GetUid()
			w.settle()
			if driver == runtimeapi.CgroupDriver_SYSTEMD {
				uid = strings.ReplaceAll(uid, "-", "_")
			}
			want := strings.ReplaceAll(want, "UID", uid)
			if got := m.sandbox().GetLinux().GetCgroupParent(); got != want {
				t.Errorf("%s: the parent is %q, want %q", driver, got, want)
			}
			if systemd := driver == runtimeapi.CgroupDriver_SYSTEMD; systemd != slices.Equal(told, []string{want}) {
				t.Errorf("%s: systemd was told of %q", driver, told)
			}
			if m.sandbox().GetLabels()[criconfig.LabelOwner] != "" {
				t.Errorf("labels: %v", m.sandbox().GetLabels())
			}
		})
	}
}

// Agents that share a runtime, or an agent and a kubelet, leave each other's pods alone; each ends its own that the
// API does not know.
func TestRuntimeIsShared(t *testing.T) {
	inWorld(t, func(w *world) {
		run := func(uid, owner string) {
			t.Helper()
			labels := map[string]string{criconfig.LabelPodUID: uid, criconfig.LabelPodName: uid,
				criconfig.LabelPodNamespace: "default"}
			if owner != "" {
				labels[criconfig.LabelOwner] = owner
			}
			box := &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "default", Uid: uid}, Labels: labels,
			}
			s, err := w.cfg.Runtime.RunPodSandbox(w.t.Context(), &runtimeapi.RunPodSandboxRequest{Config: box})
			if err != nil {
				t.Fatal(err)
			}
			c, err := w.cfg.Runtime.CreateContainer(w.t.Context(), &runtimeapi.CreateContainerRequest{
				PodSandboxId: s.GetPodSandboxId(), SandboxConfig: box,
				Config: &runtimeapi.ContainerConfig{
					Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Labels: labels,
					Image: &runtimeapi.ImageSpec{Image: "host"},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.cfg.Runtime.StartContainer(w.t.Context(),
				&runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()}); err != nil {
				t.Fatal(err)
			}
		}
		w.cfg.Owner = "me"
		run("of-a-kubelet", "")
		run("of-another", "you")
		run("of-mine", "me")
		w.start()
		w.create("a")
		run("later-another", "you")
		run("later-mine", "me")
		time.Sleep(2 * time.Minute) // a look at everything lies in between
		left := map[string]bool{}
		list, err := w.cfg.Runtime.ListPodSandbox(w.t.Context(), &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list.GetItems() {
			left[s.GetMetadata().GetName()] = s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		}
		for _, name := range []string{"a", "of-a-kubelet", "of-another", "later-another"} {
			if !left[name] {
				t.Errorf("the sandbox of %s does not run", name)
			}
		}
		if len(left) != 4 || w.runs() != 4 {
			t.Errorf("sandboxes %v and %d containers are left", left, w.runs())
		}
		// The next agent with the same mark knows its own again.
		w.kill()
		w.start()
		w.settle()
		if c := w.phase("a", "Running").GetStatus().GetContainerStatuses()[0]; c.GetRestartCount() != 0 {
			t.Errorf("not adopted: %v", c)
		}
		w.expect("a", "START main/0 @0s")
	})
}

// spec: CTR-4
func TestImageNames(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0a", 32)
	for name, want := range map[string]string{
		"host": "", "busybox": "", "busybox:1.36": "", "library/busybox:Latest_1": "", "localhost/a/b_c-d.e:1": "",
		"Registry.example/x": "",
		"localhost:5000/x":   "", "[::1]:5000/x:1": "", "x" + digest: "", "x:1" + digest: "",
		"localhost/NONE:1": "InvalidImageName", "NONE": "InvalidImageName", "a//b": "InvalidImageName",
		"a:":            "InvalidImageName",
		"no such image": "InvalidImageName", "x@sha256:12": "InvalidImageName", "-x": "InvalidImageName", "x:" +
			strings.Repeat("t", 129): "InvalidImageName",
	} {
		inWorld(t, func(w *world) {
			w.start()
			w.create("a", edit(func(p *corev1.Pod) { p.Spec.Containers[0].Image = name }))
			w.settle()
			if got := w.get("a").GetStatus().GetContainerStatuses()[0].GetState().GetWaiting().GetReason(); got != want {
				t.Errorf("image %q: %q, want %q", name, got, want)
			}
		})
	}
}
