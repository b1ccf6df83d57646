package objects_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/nodeagent/objects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server with a tracker that reads from it.
type world struct {
	t      testing.TB
	server *apitest.Server
	c      *client.Client // the administrator's
	cfg    objects.Config
	*objects.Tracker

	// open counts the watches that the tracker has open, by namespace and selector.
	open sync.Map

	mu   sync.Mutex
	told []string // what OnChange was told, a call a line
}

// inWorld runs f in a bubble, with a tracker that acts as the administrator.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	inWorldAs(t, nil, f)
}

// inWorldAs is inWorld with a tracker that acts as somebody.
func inWorldAs(t *testing.T, as func(s *apitest.Server) *client.Client, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Start(t)
		w := newWorld(t, s)
		if as != nil {
			w.cfg.Client = w.counted(as(s))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		w.cfg.Spawn = func(f func(ctx context.Context)) { wg.Go(func() { f(ctx) }) }
		w.Tracker = objects.New(w.cfg)
		f(w)
		cancel()
		wg.Wait()
		synctest.Wait()
		if n := w.watches(); n != 0 {
			t.Errorf("%d watches are open when the agent has ended", n)
		}
	})
}

func newWorld(t testing.TB, s *apitest.Server) *world {
	w := &world{t: t, server: s, c: s.Admin()}
	w.server.Namespaces(t, "ns", "other")
	w.cfg = objects.Config{Client: w.counted(s.Admin()), OnChange: func(uids []string) {
		slices.Sort(uids)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told = append(w.told, fmt.Sprint(uids))
	}}
	return w
}

// counted returns clients whose watches of ConfigMaps and Secrets are counted while they are open.
func (w *world) counted(c *client.Client) *client.Client {
	counted := *c
	counted.ConfigMaps = countedConfigMaps{c.ConfigMaps, w}
	counted.Secrets = countedSecrets{c.Secrets, w}
	return &counted
}

type countedConfigMaps struct {
	corev1rpc.ConfigMapsClient
	w *world
}

func (c countedConfigMaps) Watch(
	ctx context.Context, req *metav1.WatchRequest, opts ...grpc.CallOption,
) (grpc.ServerStreamingClient[corev1rpc.ConfigMapEvents], error) {
	c.w.opened(ctx, "configmaps", req)
	return c.ConfigMapsClient.Watch(ctx, req, opts...)
}

type countedSecrets struct {
	corev1rpc.SecretsClient
	w *world
}

func (c countedSecrets) Watch(
	ctx context.Context, req *metav1.WatchRequest, opts ...grpc.CallOption,
) (grpc.ServerStreamingClient[corev1rpc.SecretEvents], error) {
	c.w.opened(ctx, "secrets", req)
	return c.SecretsClient.Watch(ctx, req, opts...)
}

func (w *world) opened(ctx context.Context, kind string, req *metav1.WatchRequest) {
	v, _ := w.open.LoadOrStore(kind+" "+req.GetNamespace()+" "+req.GetFieldSelector(), new(atomic.Int64))
	n := v.(*atomic.Int64)
	n.Add(1)
	context.AfterFunc(ctx, func() { n.Add(-1) })
}

// watches returns how many watches are open, and fails the test when there are two of one object.
func (w *world) watches() int {
	w.t.Helper()
	all := 0
	w.open.Range(func(what, v any) bool {
		n := int(v.(*atomic.Int64).Load())
		if n > 1 {
			w.t.Errorf("%d watches of %s", n, what)
		}
		all += n
		return true
	})
	return all
}

// settle lets happen what happens at once.
func (w *world) settle() {
	w.t.Helper()
	time.Sleep(time.Millisecond)
	synctest.Wait()
}

// changes returns what OnChange was told since the last call.
func (w *world) changes() []string {
	w.settle()
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told
	w.told = nil
	return told
}

func (w *world) expect(want ...string) {
	w.t.Helper()
	if got := w.changes(); !slices.Equal(got, want) {
		w.t.Errorf("told of %v, want %v", got, want)
	}
}

// pod returns a pod that uses ConfigMaps "c..." and Secrets "s..." by name.
func pod(uid string, names ...string) *corev1.Pod {
	p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: uid, Uid: uid},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "host"}}}}
	for _, name := range names {
		ref, from := &corev1.LocalObjectReference{Name: name}, &corev1.EnvFromSource{}
		if name[0] == 'c' {
			from.ConfigMapRef = &corev1.ConfigMapEnvSource{LocalObjectReference: ref}
		} else {
			from.SecretRef = &corev1.SecretEnvSource{LocalObjectReference: ref}
		}
		p.Spec.Containers[0].EnvFrom = append(p.Spec.Containers[0].EnvFrom, from)
	}
	return p
}

// put creates or replaces an object that holds value; it is a ConfigMap when the name begins with c.
func (w *world) put(name, value string, immutable bool) {
	w.t.Helper()
	meta := &metav1.ObjectMeta{Namespace: "ns", Name: name}
	var frozen *bool
	if immutable {
		frozen = &immutable
	}
	var err error
	if name[0] == 'c' {
		o := &corev1.ConfigMap{Metadata: meta, Data: map[string]string{"k": value}, Immutable: frozen}
		_, err = w.c.ConfigMaps.Create(w.t.Context(), &corev1rpc.CreateConfigMapRequest{Object: o})
		if apierrors.Is(err, apierrors.AlreadyExists) {
			_, err = w.c.ConfigMaps.Update(w.t.Context(), &corev1rpc.UpdateConfigMapRequest{Object: o})
		}
	} else {
		o := &corev1.Secret{Metadata: meta, Data: map[string][]byte{"k": []byte(value)}, Immutable: frozen}
		_, err = w.c.Secrets.Create(w.t.Context(), &corev1rpc.CreateSecretRequest{Object: o})
		if apierrors.Is(err, apierrors.AlreadyExists) {
			_, err = w.c.Secrets.Update(w.t.Context(), &corev1rpc.UpdateSecretRequest{Object: o})
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(name string) {
	w.t.Helper()
	req := &metav1.DeleteRequest{Namespace: "ns", Name: name}
	var err error
	if name[0] == 'c' {
		_, err = w.c.ConfigMaps.Delete(w.t.Context(), req)
	} else {
		_, err = w.c.Secrets.Delete(w.t.Context(), req)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// read returns what an object holds as a Source shows it; "none" when there is no such object.
func read(ctx context.Context, s objects.Source, name string) (string, error) {
	var value string
	var err error
	if name[0] == 'c' {
		var o *corev1.ConfigMap
		o, err = s.ConfigMap(ctx, "ns", name)
		value = o.GetData()["k"]
	} else {
		var o *corev1.Secret
		o, err = s.Secret(ctx, "ns", name)
		value = string(o.GetData()["k"])
	}
	if apierrors.Is(err, apierrors.NotFound) {
		return "none", nil
	}
	return value, err
}

func (w *world) reads(name, want string) {
	w.t.Helper()
	if got, err := read(w.t.Context(), w, name); err != nil || got != want {
		w.t.Errorf("%s is %q, %v; want %q", name, got, err, want)
	}
}
