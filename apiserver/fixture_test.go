package apiserver_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	testclock "k8s.io/utils/clock/testing"

	"monoplane.dev/api/clients"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/store/test/etcdtest"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client/inproc"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// cluster is an API server over a real store, without listeners.
type cluster struct {
	t      testing.TB
	api    *apiserver.Server
	server *inproc.Server
	clock  *testclock.FakeClock
	log    *logBuffer
	store  *store.Store
	// bearers knows the tokens that the server issues.
	bearers *authn.Bearers
	// conn connects somebody.
	conn func(u *authn.User, opts ...inproc.Option) grpc.ClientConnInterface

	// second is another server of the same etcd, which every other client calls; nil for none.
	second  *cluster
	clients atomic.Uint64
}

// logBuffer collects log lines of many goroutines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func start(t testing.TB, change ...func(*apiserver.Config)) *cluster {
	t.Helper()
	return startWith(t, apitest.Config{}, change...)
}

func startWith(t testing.TB, cfg apitest.Config, change ...func(*apiserver.Config)) *cluster {
	t.Helper()
	c := &cluster{t: t, clock: testclock.NewFakeClock(epoch), log: &logBuffer{}}
	cfg.API.Clock, cfg.API.Logger = c.clock, slog.New(slog.NewTextHandler(c.log, nil))
	for _, f := range change {
		f(&cfg.API)
	}
	s := apitest.StartWith(t, cfg)
	c.api, c.server, c.store, c.conn, c.bearers = s.API, s.Inproc, s.Store, s.Conn, s.Bearers
	return c
}

// client is every service, as one identity.
type client struct {
	clients.Clients
	conn grpc.ClientConnInterface
}

// startTwo returns two servers on one external etcd. Every other client of the first is one of the second.
func startTwo(t testing.TB) *cluster {
	t.Helper()
	cfg := apitest.Config{Endpoints: []string{etcdtest.Start(t)}}
	clock := testclock.NewFakeClock(epoch)
	one := func() *cluster {
		c := startWith(t, cfg, func(a *apiserver.Config) { a.Clock = clock })
		c.clock = clock
		return c
	}
	c := one()
	c.second = one()
	return c
}

func (c *cluster) as(u *authn.User) client {
	if c.second != nil && c.clients.Add(1)%2 == 0 {
		return c.second.as(u)
	}
	conn := c.conn(u)
	return client{clients.New(conn), conn}
}

func adminUser() *authn.User {
	return &authn.User{Name: authn.AdminName, Groups: []string{authn.AdminsGroup}}
}

func agentUser(node, key string) *authn.User {
	return &authn.User{Name: authn.NodePrefix + node, Groups: []string{authn.NodesGroup}, UID: key}
}

func (c *cluster) admin() client { return c.as(adminUser()) }

func (c *cluster) agent(node string) client { return c.as(agentUser(node, "key-"+node)) }

func (c *cluster) controller(name string) client {
	return c.as(&authn.User{Name: authn.ControllerPrefix + name})
}

func (c *cluster) scheduler() client { return c.as(&authn.User{Name: authn.SchedulerName}) }

func ptr[T any](v T) *T { return &v }

func ctx(t testing.TB) context.Context {
	t.Helper()
	return t.Context()
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "host",
			Command: []string{"sleep", "1"}}}},
	}
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name}}
}

// must returns v and ends the test on an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (c *cluster) createPod(p *corev1.Pod) *corev1.Pod {
	c.t.Helper()
	return must(c.admin().Pods.Create(ctx(c.t), &corev1rpc.CreatePodRequest{Object: p}))(c.t)
}

func (c *cluster) getPod(name string) (*corev1.Pod, error) {
	return c.admin().Pods.Get(ctx(c.t), &metav1.GetRequest{Namespace: "default", Name: name})
}

// register creates a node by its own agent.
func (c *cluster) register(name string) {
	c.t.Helper()
	must(c.agent(name).Nodes.Create(ctx(c.t), &corev1rpc.CreateNodeRequest{Object: newNode(name)}))(c.t)
}

func (c *cluster) bind(p *corev1.Pod, node string) error {
	_, err := c.scheduler().Pods.Bind(ctx(c.t), &corev1rpc.BindPodRequest{
		Namespace: p.Metadata.Namespace, Name: p.Metadata.Name,
		Object: &corev1.Binding{
			Metadata: &metav1.ObjectMeta{Uid: p.Metadata.Uid}, Target: &corev1.ObjectReference{Kind: "Node", Name: node},
		},
	})
	return err
}

// boundPod creates a pod and binds it.
func (c *cluster) boundPod(name, node string) *corev1.Pod {
	c.t.Helper()
	p := c.createPod(newPod(name))
	if err := c.bind(p, node); err != nil {
		c.t.Fatal(err)
	}
	return must(c.getPod(name))(c.t)
}

// setPhase writes a phase as somebody.
func setPhase(t testing.TB, by client, p *corev1.Pod, phase string) (*corev1.Pod, error) {
	return by.Pods.UpdateStatus(ctx(t), &corev1rpc.UpdatePodRequest{Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: p.Metadata.Namespace, Name: p.Metadata.Name, Uid: p.Metadata.Uid},
		Status:   &corev1.PodStatus{Phase: phase, Conditions: p.GetStatus().GetConditions()},
	}})
}

func deletePod(t testing.TB, by client, p *corev1.Pod, grace *int64, uid bool) (*corev1.Pod, error) {
	opts := &metav1.DeleteOptions{GracePeriodSeconds: grace}
	if uid {
		opts.Preconditions = &metav1.Preconditions{Uid: ptr(p.Metadata.Uid)}
	}
	return by.Pods.Delete(ctx(t), &metav1.DeleteRequest{Namespace: p.Metadata.Namespace, Name: p.Metadata.Name,
		Options: opts})
}
