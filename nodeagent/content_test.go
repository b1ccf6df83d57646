package nodeagent_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/inproc"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/runtime/fake"
)

// watched is a runtime that remembers what containers were made of, and with what images were pulled.
type watched struct {
	*fake.Runtime

	mu    sync.Mutex
	made  map[string]*runtimeapi.ContainerConfig // the newest by the container's name
	pulls []string
	// asked are the images that it was asked for.
	asked []string
	// answer says what comes of a pull.
	answer func(auth *runtimeapi.AuthConfig) error
	// is, where it is not nil, is what the runtime says that it is.
	is *runtimeapi.VersionResponse
}

// Version implements runtimeapi.RuntimeServiceServer.
func (r *watched) Version(ctx context.Context, req *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.is != nil {
		return r.is, nil
	}
	return r.Runtime.Version(ctx, req)
}

// CreateContainer implements runtimeapi.RuntimeServiceServer.
func (r *watched) CreateContainer(
	ctx context.Context, req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	r.mu.Lock()
	r.made[req.GetSandboxConfig().GetMetadata().GetName()] = req.GetConfig()
	r.mu.Unlock()
	return r.Runtime.CreateContainer(ctx, req)
}

// PullImage implements runtimeapi.ImageServiceServer.
func (r *watched) PullImage(
	ctx context.Context, req *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	r.mu.Lock()
	auth := req.GetAuth()
	r.pulls = append(r.pulls, auth.GetUsername()+":"+auth.GetPassword())
	r.asked = append(r.asked, req.GetImage().GetImage())
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		if err := answer(auth); err != nil {
			return nil, err
		}
	}
	return r.Runtime.PullImage(ctx, req)
}

// ImageStatus implements runtimeapi.ImageServiceServer.
func (r *watched) ImageStatus(
	ctx context.Context, req *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	r.mu.Lock()
	r.asked = append(r.asked, req.GetImage().GetImage())
	r.mu.Unlock()
	return r.Runtime.ImageStatus(ctx, req)
}

// inWatchedWorld is inWorld with such a runtime, and with events and a log.
func inWatchedWorld(t *testing.T, f func(w *world, rt *watched, log *logBuffer)) {
	t.Helper()
	inWorld(t, func(w *world) {
		rt := &watched{Runtime: w.rt, made: map[string]*runtimeapi.ContainerConfig{}}
		cri := inproc.NewServer(nil, nil)
		defer cri.Stop()
		runtimeapi.RegisterRuntimeServiceServer(cri, rt)
		runtimeapi.RegisterImageServiceServer(cri, rt)
		w.cfg.Runtime = runtimeapi.NewRuntimeServiceClient(cri.Conn())
		w.cfg.Images = runtimeapi.NewImageServiceClient(cri.Conn())
		recorder := record.New(record.Config{Events: w.c.Events, Controller: "kubelet", Instance: nodeName})
		ctx, stop := context.WithCancel(w.t.Context())
		ended := make(chan error, 1)
		go func() { ended <- recorder.Run(ctx) }()
		defer func() { stop(); <-ended }()
		log := &logBuffer{}
		w.cfg.Recorder, w.cfg.Logger = recorder, slog.New(slog.NewTextHandler(log,
			&slog.HandlerOptions{Level: slog.LevelDebug}))
		f(w, rt, log)
	})
}

func (w *world) configMap(name string, data map[string]string) {
	w.t.Helper()
	_, err := w.c.ConfigMaps.Create(w.t.Context(), &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}, Data: data}})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) secret(name, kind string, data map[string]string) {
	w.t.Helper()
	_, err := w.c.Secrets.Create(w.t.Context(), &corev1rpc.CreateSecretRequest{Object: &corev1.Secret{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}, Type: kind, StringData: data}})
	if err != nil {
		w.t.Fatal(err)
	}
}

// events returns what was recorded, as "REASON: MESSAGE".
func (w *world) events() []string {
	w.t.Helper()
	list, err := w.c.Events.List(w.t.Context(), &metav1.ListRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, e := range list.Items {
		out = append(out, e.Reason+": "+e.Message)
	}
	return out
}

func (w *world) waitsFor(name, reason, message string) {
	w.t.Helper()
	got := w.get(name).GetStatus().GetContainerStatuses()[0].GetState().GetWaiting()
	if got.GetReason() != reason || got.GetMessage() != message {
		w.t.Errorf("%s waits: %v, want %s: %s", name, got, reason, message)
	}
}

func uses(configMap, secret string) podOption {
	return edit(func(p *corev1.Pod) {
		ref := func(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }
		c := p.Spec.Containers[0]
		if configMap != "" {
			c.EnvFrom = append(c.EnvFrom, &corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{
				LocalObjectReference: ref(configMap)}})
		}
		if secret != "" {
			c.Env = append(c.Env, &corev1.EnvVar{Name: "S", ValueFrom: &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref(secret), Key: "k"}}})
		}
	})
}

// A container waits for the objects that its variables come from, in Kubernetes' words, and runs as soon as they are
// there.
//
// spec: CTR-7
func TestContainersWaitForTheirVariables(t *testing.T) {
	inWatchedWorld(t, func(w *world, rt *watched, _ *logBuffer) {
		w.start()
		w.create("a", uses("c", "s"))
		w.settle()
		w.waitsFor("a", "CreateContainerConfigError", `configmap "c" not found`)
		w.configMap("c", map[string]string{"A": "1"})
		w.settle()
		w.waitsFor("a", "CreateContainerConfigError", `secret "s" not found`)
		w.secret("s", "", map[string]string{"other": "hunter2hunter2"})
		w.settle()
		w.waitsFor("a", "CreateContainerConfigError", "couldn't find key k in Secret default/s")
		patch := &metav1.PatchRequest{Namespace: "default", Name: "s", PatchType: "application/merge-patch+json",
			Patch: []byte(`{"stringData":{"k":"hunter2hunter2"}}`)}
		if _, err := w.c.Secrets.Patch(w.t.Context(), patch); err != nil {
			w.t.Fatal(err)
		}
		began := time.Now()
		w.settle()
		w.phase("a", "Running")
		var env []string
		for _, v := range rt.made["a"].GetEnvs() {
			env = append(env, v.GetKey()+"="+string(v.GetValue()))
		}
		if want := []string{"HOSTNAME=a", "A=1", "S=hunter2hunter2"}; !slices.Equal(env, want) {
			w.t.Errorf("variables %q, want %q", env, want)
		}
		if took := time.Since(began); took > 5*time.Second {
			w.t.Errorf("it took %v", took)
		}
		for _, want := range []string{`Failed: Error: configmap "c" not found`, `Failed: Error: secret "s" not found`} {
			if !slices.Contains(w.events(), want) {
				w.t.Errorf("no event %q in %q", want, w.events())
			}
		}
	})
}

// watching counts the watches that are begun.
type watching struct {
	corev1rpc.ConfigMapsClient
	begun *atomic.Int64
}

// Watch implements corev1rpc.ConfigMapsClient.
func (c watching) Watch(
	ctx context.Context, req *metav1.WatchRequest, opts ...grpc.CallOption,
) (grpc.ServerStreamingClient[corev1rpc.ConfigMapEvents], error) {
	c.begun.Add(1)
	return c.ConfigMapsClient.Watch(ctx, req, opts...)
}

// However many pods use an object, the agent asks for it once, and no more when they are gone; a pod that uses nothing
// makes it ask for nothing.
//
// spec: OBJ-15
func TestAgentsWatchWhatPodsUse(t *testing.T) {
	inWatchedWorld(t, func(w *world, rt *watched, _ *logBuffer) {
		w.configMap("c", map[string]string{"A": "1"})
		var watches atomic.Int64
		w.cfg.Client.ConfigMaps = watching{w.cfg.Client.ConfigMaps, &watches}
		w.start()
		w.create("none")
		for i := range 20 {
			w.create(fmt.Sprint("p", i), uses("c", ""))
		}
		w.settle()
		for i := range 20 {
			w.phase(fmt.Sprint("p", i), "Running")
		}
		reads := w.api.Calls(corev1rpc.ConfigMaps_Get_FullMethodName) + w.api.Calls(corev1rpc.Secrets_Watch_FullMethodName)
		if n := watches.Load(); n != 1 || reads != 0 {
			w.t.Errorf("%d watches and %d reads for 20 pods", n, reads)
		}
		for i := range 20 {
			w.delete(fmt.Sprint("p", i), 0)
		}
		w.settle()
		w.api.Cut()
		time.Sleep(time.Minute)
		if n := watches.Load(); n != 1 {
			w.t.Errorf("the watch goes on when the pods are gone: %d", n)
		}
	})
}

// Images are pulled with the credentials of the pod's Secrets, one after the other; without when there are none, and
// again as soon as a Secret appears. Nothing of them is told to anybody but the runtime.
//
// spec: CTR-6
func TestPullSecrets(t *testing.T) {
	const password = "hunter2hunter2"
	inWatchedWorld(t, func(w *world, rt *watched, log *logBuffer) {
		rt.answer = func(auth *runtimeapi.AuthConfig) error {
			if auth.GetUsername() != "right" {
				return status.Errorf(codes.Unknown, "401 for %q with %q", auth.GetUsername(), auth.GetPassword())
			}
			return nil
		}
		config := func(user string) map[string]string {
			return map[string]string{".dockerconfigjson": `{"auths":{"r.example.com":{"username":"` + user +
				`","password":"` + password + `"}}}`}
		}
		const kind = "kubernetes.io/dockerconfigjson"
		w.secret("wrong", kind, config("wrong"))
		w.secret("broken", kind, map[string]string{".dockerconfigjson": `{"auths":{"r.example.com":{"auth":"` + password +
			`"}}}`})
		w.start()
		w.create("a", edit(func(p *corev1.Pod) {
			p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "r.example.com/x:1", "Always"
			for _, name := range []string{"missing", "broken", "wrong", "right"} {
				p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, &corev1.LocalObjectReference{Name: name})
			}
		}))
		w.create("b", edit(func(p *corev1.Pod) {
			p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "r.example.com/x:1", "Always"
		}))
		w.settle()
		w.waitsFor("a", "ErrImagePull", `401 for "wrong" with "<redacted>"`)
		w.waitsFor("b", "ErrImagePull", `401 for "" with ""`)
		rt.mu.Lock()
		slices.Sort(rt.pulls)
		if want := []string{":", "wrong:" + password}; !slices.Equal(rt.pulls, want) {
			w.t.Errorf("pulled with %q, want %q", rt.pulls, want)
		}
		rt.pulls = nil
		rt.mu.Unlock()
		w.secret("right", kind, config("right"))
		w.settle()
		w.phase("a", "Running")
		w.phase("b", "Pending")
		rt.mu.Lock()
		if want := []string{"wrong:" + password, "right:" + password}; !slices.Equal(rt.pulls, want) {
			w.t.Errorf("pulled with %q, want %q", rt.pulls, want)
		}
		rt.mu.Unlock()
		time.Sleep(time.Minute)
		events := w.events()
		for _, want := range []string{
			"FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (missing, broken, right); " +
				"attempting to pull the image may not succeed.",
			`Failed: Failed to pull image "r.example.com/x:1": 401 for "wrong" with "<redacted>"`,
			"Failed: Error: ErrImagePull", `BackOff: Back-off pulling image "r.example.com/x:1"`,
			"Failed: Error: ImagePullBackOff",
		} {
			if !slices.Contains(events, want) {
				w.t.Errorf("no event %q in %q", want, events)
			}
		}
		w.waitsFor("b", "ImagePullBackOff", `Back-off pulling image "r.example.com/x:1": ErrImagePull: 401 for "" with ""`)
		w.kill()
		said := strings.Join(events, "\n") + log.String() + w.get("a").String() + w.get("b").String()
		if strings.Contains(said, password) {
			w.t.Errorf("a password was told: %s", said)
		}
	})
}

// Events tell how a pull went, as in Kubernetes, and what is wrong with what cannot be pulled.
//
// spec: CTR-6
func TestPullEvents(t *testing.T) {
	inWatchedWorld(t, func(w *world, rt *watched, _ *logBuffer) {
		w.cfg.Simulated, w.cfg.PodsDir = false, w.t.TempDir()
		rt.answer = func(*runtimeapi.AuthConfig) error { time.Sleep(1500 * time.Millisecond); return nil }
		w.start()
		image := func(name, policy string) podOption {
			return edit(func(p *corev1.Pod) {
				p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = name, policy
			})
		}
		w.create("pulled", image("there:1", "Always"))
		w.create("present", image("there:2", "IfNotPresent"))
		w.create("never", image("missing:1", "Never"))
		w.create("name", image("NO NAME", "Always"))
		time.Sleep(3 * time.Second)
		w.settle()
		events := w.events()
		for _, want := range []string{
			`Pulling: Pulling image "there:1"`,
			`Pulled: Successfully pulled image "there:1" in 1.5s (1.5s including waiting). Image size: `,
			`Pulled: Container image "there:2" already present on machine and can be accessed by the pod`,
			`ErrImageNeverPull: Container image "missing:1" is not present with pull policy of Never`,
			`Failed: Error: ErrImageNeverPull`,
			`InspectFailed: Failed to apply default image tag "NO NAME": couldn't parse image name "NO NAME": ` +
				"invalid reference format",
			"Failed: Error: InvalidImageName",
		} {
			if !slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, want) }) {
				w.t.Errorf("no event %q in %q", want, events)
			}
		}
	})
}

// A runtime is asked for an image by its whole name, for a bare one could be the beginning of another image's id: what
// has no tag is the latest. Events say what the pod says.
//
// spec: CTR-6
func TestImagesAreAskedForByWholeNames(t *testing.T) {
	inWatchedWorld(t, func(w *world, rt *watched, _ *logBuffer) {
		w.cfg.Simulated, w.cfg.PodsDir = false, w.t.TempDir()
		w.start()
		digest := "feed@sha256:" + strings.Repeat("0a", 32)
		for i, c := range []struct{ image, policy, want string }{
			{"cafe", "Always", "cafe:latest"}, {"cafe", "IfNotPresent", "cafe:latest"}, {"cafe:1", "IfNotPresent", "cafe:1"},
			{digest, "IfNotPresent", digest}, {"r.example:5000/a/feed", "Always", "r.example:5000/a/feed:latest"},
			{"r.example:5000/feed:v1", "Always", "r.example:5000/feed:v1"},
		} {
			rt.mu.Lock()
			rt.asked = nil
			rt.mu.Unlock()
			w.create(fmt.Sprint("p", i), edit(func(p *corev1.Pod) {
				p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = c.image, c.policy
			}))
			w.settle()
			rt.mu.Lock()
			asked := slices.Clone(rt.asked) // Later by what the runtime itself calls the image.
			rt.mu.Unlock()
			if len(asked) == 0 || asked[0] != c.want {
				w.t.Errorf("%s, %s: the runtime was asked for %q, want %q", c.image, c.policy, asked, c.want)
			}
		}
		if events := w.events(); !slices.Contains(events, `Pulling: Pulling image "cafe"`) {
			w.t.Errorf("%q", events)
		}
	})
}
