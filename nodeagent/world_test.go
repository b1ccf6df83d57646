package nodeagent_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent"
	"monoplane.dev/nodeagent/hostinfo"
	"monoplane.dev/nodeagent/runtime/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nodeName = "node-a"

// world is an API server, a runtime and an agent in a bubble of virtual time.
type world struct {
	t   *testing.T
	api *apitest.Server
	// c is the administrator's, agents have their own.
	c   *client.Client
	rt  *fake.Runtime
	cri *inproc.Server
	cfg nodeagent.Config

	agent *nodeagent.Agent
	stop  func()
	ended chan error

	mu      sync.Mutex
	began   time.Time
	journal []fake.Entry
	fault   func(method, id string) error
}

// inWorld runs f in a world without an agent; start begins one.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, api: apitest.Start(t)}
		// The API's times are whole seconds, and so are what tests expect.
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		w.began = time.Now()
		w.rt = fake.New(fake.Config{
			Journal: func(e fake.Entry) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.journal = append(w.journal, e)
			},
			Fault: func(method, id string) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.fault == nil {
					return nil
				}
				return w.fault(method, id)
			},
		})
		w.cri = inproc.NewServer(nil, nil)
		runtimeapi.RegisterRuntimeServiceServer(w.cri, w.rt)
		runtimeapi.RegisterImageServiceServer(w.cri, w.rt)
		w.c = w.api.Admin()
		conn := w.cri.Conn()
		w.cfg = nodeagent.Config{
			NodeName: nodeName, Client: w.api.Agent(nodeName), NoStreams: true, Simulated: true,
			Machine: hostinfo.Simulated(nodeName, 1),
			Runtime: runtimeapi.NewRuntimeServiceClient(conn), Images: runtimeapi.NewImageServiceClient(conn),
		}
		defer w.cri.Stop()
		defer func() {
			if w.stop != nil {
				w.kill()
			}
		}()
		f(w)
	})
}

// begin starts an agent without waiting for it.
func (w *world) begin() {
	w.t.Helper()
	a, err := nodeagent.New(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	w.agent, w.stop, w.ended = a, cancel, ended
}

// start starts an agent and waits until it is ready.
func (w *world) start() {
	w.t.Helper()
	w.begin()
	select {
	case <-w.agent.Ready():
	case err := <-w.ended:
		w.t.Fatalf("the agent ended: %v", err)
	case <-time.After(time.Minute):
		w.t.Fatal("the agent is not ready after a minute")
	}
	synctest.Wait()
}

// kill makes the agent let go, as a crash or an upgrade does.
func (w *world) kill() {
	w.stop()
	if err := <-w.ended; !errors.Is(err, context.Canceled) && !errors.Is(err, nodeagent.ErrRefused) {
		w.t.Errorf("Run: %v", err)
	}
	w.agent, w.stop = nil, nil
}

type podOption func(*corev1.Pod)

func restart(policy string) podOption {
	return func(p *corev1.Pod) { p.Spec.RestartPolicy = policy }
}

func grace(s int64) podOption {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = proto.Int64(s) }
}

func annotated(pairs ...string) podOption {
	return func(p *corev1.Pod) {
		if p.Metadata.Annotations == nil {
			p.Metadata.Annotations = map[string]string{}
		}
		for i := 0; i < len(pairs); i += 2 {
			p.Metadata.Annotations[fake.Prefix+pairs[i]] = pairs[i+1]
		}
	}
}

func containers(names ...string) podOption {
	return func(p *corev1.Pod) {
		p.Spec.Containers = nil
		for _, n := range names {
			p.Spec.Containers = append(p.Spec.Containers, &corev1.Container{Name: n, Image: "host"})
		}
	}
}

func edit(f func(p *corev1.Pod)) podOption { return f }

// create makes a pod that is bound to the node.
func (w *world) create(name string, opts ...podOption) *corev1.Pod {
	w.t.Helper()
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1},
		Spec: &corev1.PodSpec{
			NodeName: nodeName, RestartPolicy: "Always", TerminationGracePeriodSeconds: proto.Int64(30),
			Containers: []*corev1.Container{{Name: "main", Image: "host"}},
		},
		Status: &corev1.PodStatus{Phase: "Pending"},
	}
	for _, o := range opts {
		o(p)
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if c.ImagePullPolicy == "" {
			c.ImagePullPolicy = "IfNotPresent" // by default, images without a tag are pulled always
		}
	}
	p, err := w.c.Pods.Create(w.t.Context(), &corev1rpc.CreatePodRequest{Namespace: "default", Object: p})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// get returns a pod, nil when it does not exist.
func (w *world) get(name string) *corev1.Pod {
	w.t.Helper()
	p, err := w.c.Pods.Get(w.t.Context(), &metav1.GetRequest{Namespace: "default", Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// delete deletes a pod with a grace period; a negative one means the pod's own.
func (w *world) delete(name string, grace int64) {
	w.t.Helper()
	req := &metav1.DeleteRequest{Namespace: "default", Name: name, Options: &metav1.DeleteOptions{}}
	if grace >= 0 {
		req.Options.GracePeriodSeconds = proto.Int64(grace)
	}
	if _, err := w.c.Pods.Delete(w.t.Context(), req); err != nil {
		w.t.Fatal(err)
	}
}

// settle waits until nothing happens any more for now, short waits such as gathering of changes included.
func (w *world) settle() {
	time.Sleep(500 * time.Millisecond)
	synctest.Wait()
}

// phase checks a pod's phase.
func (w *world) phase(name, want string) *corev1.Pod {
	w.t.Helper()
	p := w.get(name)
	if got := p.GetStatus().GetPhase(); got != want {
		w.t.Fatalf("pod %s is %q after %s, want %q\n%v", name, got, time.Since(w.began), want, p.GetStatus())
	}
	return p
}

// signals returns what happened to a pod's containers, as "WHAT container/attempt @ seconds", since the world began.
func (w *world) signals(pod string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, e := range w.journal {
		if e.Pod == pod {
			out = append(out, fmt.Sprintf("%s %s/%d @%s", e.What, e.Container, e.Attempt,
				e.Time.Sub(w.began).Round(100*time.Millisecond)))
		}
	}
	return out
}

// expect compares what happened to a pod's containers.
func (w *world) expect(pod string, want ...string) {
	w.t.Helper()
	got := w.signals(pod)
	// What happens at one instant has no order.
	for _, list := range [][]string{got, want} {
		slices.SortStableFunc(list, func(a, b string) int {
			at := func(s string) time.Duration {
				d, err := time.ParseDuration(s[strings.IndexByte(s, '@')+1:])
				if err != nil {
					w.t.Fatal(err)
				}
				return d
			}
			if c := cmp.Compare(at(a), at(b)); c != 0 {
				return c
			}
			return cmp.Compare(a, b)
		})
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("pod %s:\n got %s\nwant %s", pod, strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// runs returns how many containers run.
func (w *world) runs() int {
	w.t.Helper()
	l, err := w.cfg.Runtime.ListContainers(w.t.Context(),
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		}})
	if err != nil {
		w.t.Fatal(err)
	}
	return len(l.GetContainers())
}

// empty checks that the runtime has nothing at all.
func (w *world) empty() {
	w.t.Helper()
	s, err := w.cfg.Runtime.ListPodSandbox(w.t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	if n := len(s.GetItems()); n > 0 {
		w.t.Errorf("%d sandboxes are left", n)
	}
}

func (w *world) setFault(f func(method, id string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

// swap replaces the runtime by another one.
func (w *world) swap(cfg fake.Config) {
	w.cri.Stop()
	w.rt = fake.New(cfg)
	w.cri = inproc.NewServer(nil, nil)
	runtimeapi.RegisterRuntimeServiceServer(w.cri, w.rt)
	runtimeapi.RegisterImageServiceServer(w.cri, w.rt)
	conn := w.cri.Conn()
	w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
}

// wipe makes the runtime forget everything.
func (w *world) wipe() { w.swap(fake.Config{}) }

func (w *world) node() *corev1.Node {
	w.t.Helper()
	n, err := w.c.Nodes.Get(w.t.Context(), &metav1.GetRequest{Name: nodeName})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) deleteNode() {
	w.t.Helper()
	if _, err := w.c.Nodes.Delete(w.t.Context(), &metav1.DeleteRequest{Name: nodeName,
		Options: &metav1.DeleteOptions{}}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) setLabel(k, v string) {
	w.t.Helper()
	n := proto.CloneOf(w.node())
	n.Metadata.Labels[k] = v
	if v == "" {
		delete(n.Metadata.Labels, k)
	}
	if _, err := w.c.Nodes.Update(w.t.Context(), &corev1rpc.UpdateNodeRequest{Name: nodeName, Object: n}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) removeLabel(k string) { w.setLabel(k, "") }
