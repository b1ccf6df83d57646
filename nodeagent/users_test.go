package nodeagent_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/inproc"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/runtime/fake"
)

// mapping is a runtime that can give pods users of their own, and remembers what it was asked for.
type mapping struct {
	*fake.Runtime
	mu         sync.Mutex
	sandboxes  []*runtimeapi.PodSandboxConfig
	containers []*runtimeapi.ContainerConfig
}

// Status implements runtimeapi.RuntimeServiceServer.
func (r *mapping) Status(ctx context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	got, err := r.Runtime.Status(ctx, req)
	got.RuntimeHandlers = []*runtimeapi.RuntimeHandler{
		{Name: "", Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}, {Name: "other"},
	}
	return got, err
}

// RunPodSandbox implements runtimeapi.RuntimeServiceServer.
func (r *mapping) RunPodSandbox(
	ctx context.Context, req *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	r.mu.Lock()
	r.sandboxes = append(r.sandboxes, req.GetConfig())
	r.mu.Unlock()
	return r.Runtime.RunPodSandbox(ctx, req)
}

// CreateContainer implements runtimeapi.RuntimeServiceServer.
func (r *mapping) CreateContainer(
	ctx context.Context, req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	r.mu.Lock()
	r.containers = append(r.containers, req.GetConfig())
	r.mu.Unlock()
	return r.Runtime.CreateContainer(ctx, req)
}

// onMachine makes the world one of a machine that exists, with a runtime that remembers.
func (w *world) onMachine() (rt *mapping, pods string) {
	rt, pods = &mapping{Runtime: w.rt}, w.t.TempDir()
	cri := inproc.NewServer(nil, nil)
	w.t.Cleanup(cri.Stop)
	runtimeapi.RegisterRuntimeServiceServer(cri, rt)
	w.cfg.Runtime = runtimeapi.NewRuntimeServiceClient(cri.Conn())
	w.cfg.Simulated, w.cfg.PodsDir = false, pods
	return rt, pods
}

// Each pod that wants users of its own has its own range of ids, in its sandbox, its containers and what is mounted
// there, and keeps it when the agent starts again; when it is gone, others can have it.
// spec: USER-1
func TestPodsWithUsersOfTheirOwn(t *testing.T) {
	own := edit(func(p *corev1.Pod) { p.Spec.HostUsers = proto.Bool(false) })
	inWorld(t, func(w *world) {
		rt, pods := w.onMachine()
		w.start()
		w.create("plain")
		w.create("a", own)
		w.create("b", own)
		w.settle()
		first := map[string]uint32{}
		for _, s := range rt.sandboxes {
			ids := s.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
			name := s.GetMetadata().GetName()
			if name == "plain" {
				if ids.GetMode() != runtimeapi.NamespaceMode_NODE || len(ids.GetUids()) > 0 {
					t.Errorf("a pod with the node's users: %v", ids)
				}
				continue
			}
			if ids.GetMode() != runtimeapi.NamespaceMode_POD || len(ids.GetUids()) != 1 || len(ids.GetGids()) != 1 {
				t.Fatalf("%s: %v", name, ids)
			}
			uids, gids := ids.GetUids()[0], ids.GetGids()[0]
			if uids.GetLength() != 65536 || uids.GetContainerId() != 0 || uids.GetHostId() < 65536 ||
				uids.String() != gids.String() {
				t.Errorf("%s: %v", name, ids)
			}
			first[name] = uids.GetHostId()
		}
		if len(first) != 2 || first["a"] == first["b"] {
			t.Errorf("first ids: %v", first)
		}
		for _, c := range rt.containers {
			name := c.GetLabels()["io.kubernetes.pod.name"]
			ids := c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
			if name != "plain" && (len(ids.GetUids()) != 1 || ids.GetUids()[0].GetHostId() != first[name]) {
				t.Errorf("a container of %s: %v", name, ids)
			}
			for _, m := range c.GetMounts() {
				if got := len(m.GetUidMappings()); got != len(ids.GetUids()) || len(m.GetGidMappings()) != got {
					t.Errorf("a mount of %s: %v", name, m)
				}
			}
			if len(c.GetMounts()) == 0 {
				t.Errorf("%s has no hosts file", name)
			}
		}
		w.kill()
		w.start()
		w.create("c", own)
		w.settle()
		ids := rt.sandboxes[len(rt.sandboxes)-1].GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
		if got := ids.GetUids()[0].GetHostId(); got == first["a"] || got == first["b"] {
			t.Errorf("the ids from %d on were given twice", got)
		}
		w.delete("a", -1)
		w.settle()
		w.create("d", own)
		w.settle()
		ids = rt.sandboxes[len(rt.sandboxes)-1].GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
		if got := ids.GetUids()[0].GetHostId(); got != first["a"] {
			t.Errorf("the ids of a pod that is gone, from %d on, are not free; the next are from %d on", first["a"], got)
		}
		hosts, err := os.ReadFile(filepath.Join(pods, w.get("b").GetMetadata().GetUid(), "etc-hosts"))
		if err != nil || !strings.Contains(string(hosts), "\tb\n") {
			t.Errorf("the hosts file: %q, %v", hosts, err)
		}
	})
}

// spec: USER-2
func TestRuntimeWithoutUserNamespaces(t *testing.T) {
	inWorld(t, func(w *world) {
		recorder := record.New(record.Config{Events: w.c.Events, Controller: "kubelet", Instance: nodeName})
		ctx, stop := context.WithCancel(w.t.Context())
		ended := make(chan error, 1)
		go func() { ended <- recorder.Run(ctx) }()
		defer func() { stop(); <-ended }()
		w.cfg.Simulated, w.cfg.PodsDir, w.cfg.Recorder = false, w.t.TempDir(), recorder
		w.start()
		w.create("a", edit(func(p *corev1.Pod) { p.Spec.HostUsers = proto.Bool(false) }))
		w.settle()
		w.phase("a", "Pending")
		events, err := w.c.Events.List(w.t.Context(), &metav1.ListRequest{})
		if err != nil {
			w.t.Fatal(err)
		}
		if !slices.ContainsFunc(events.Items, func(e *corev1.Event) bool {
			return e.Reason == "FailedCreatePodSandBox" && e.Type == "Warning" &&
				strings.Contains(e.Message, "the runtime does not support user namespaces")
		}) {
			w.t.Errorf("events %v", events.Items)
		}
		w.empty()
	})
}
