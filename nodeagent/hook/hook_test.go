package hook_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/hook"
	"monoplane.dev/nodeagent/probe"
)

func target() probe.Target {
	return probe.Target{PodIP: "127.0.0.1", Container: &corev1.Container{Name: "app"}}
}

// expect runs a hook; want is part of its error, and empty for none.
func expect(t *testing.T, h *corev1.LifecycleHandler, to probe.Target, want string) {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	err := hook.Run(t.Context(), h, to)
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	if err := goleak.Find(leaks); err != nil {
		t.Error(err)
	}
}

// spec: HOOK-1
func TestExec(t *testing.T) {
	var code int32
	var failure error
	to := target()
	to.Exec = func(_ context.Context, command []string, timeout time.Duration) ([]byte, int32, error) {
		if strings.Join(command, " ") != "sh -c $(A)" || timeout != 0 {
			t.Errorf("asked for %q within %v", command, timeout)
		}
		return []byte("said \xff" + strings.Repeat("x", 1<<20)), code, failure
	}
	to.Container.Env = []*corev1.EnvVar{{Name: "A", Value: "not for hooks"}}
	h := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "$(A)"}}}
	expect(t, h, to, "")
	code = 3
	expect(t, h, to, "command 'sh -c $(A)' exited with 3: said \uFFFDxxx")
	if n := len(hook.Run(t.Context(), h, to).Error()); n > 2<<10 {
		t.Errorf("an error of %d bytes", n)
	}
	failure = errors.New("no such container")
	expect(t, h, to, "no such container")
}

// spec: HOOK-1
func TestHTTP(t *testing.T) {
	var got *http.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.WriteHeader(http.StatusInternalServerError) // an answer is an answer
	}))
	defer s.Close()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	h := &corev1.LifecycleHandler{HttpGet: &corev1.HTTPGetAction{
		Path: "/bye", Port: &metav1.IntOrString{IntVal: int32(port)},
		HttpHeaders: []*corev1.HTTPHeader{{Name: "Authorization", Value: "secret"}, {Name: "X", Value: "y"}},
	}}
	expect(t, h, target(), "")
	if got.URL.Path != "/bye" || got.Header.Get("User-Agent") != "kube-lifecycle/1.36" ||
		got.Header.Get("Authorization") != "secret" {
		t.Errorf("asked for %s with %v", got.URL, got.Header)
	}
	h.HttpGet.Scheme = "HTTPS" // which this server does not know
	expect(t, h, target(), "")
	if got.Header.Get("Authorization") != "" || got.Header.Get("X") != "y" {
		t.Errorf("asked with %v", got.Header)
	}
	s.Close()
	expect(t, h, target(), "connection refused")
}

func TestHTTPEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer s.Close()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	leaks := goleak.IgnoreCurrent()
	err = hook.Run(ctx, &corev1.LifecycleHandler{HttpGet: &corev1.HTTPGetAction{
		Port: &metav1.IntOrString{Type: 1, StrVal: u.Port()},
	}}, target())
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err := goleak.Find(leaks, goleak.IgnoreAnyFunction("net/http.(*conn).serve")); err != nil {
		t.Error(err)
	}
}

// spec: HOOK-1
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}
		start := time.Now()
		if err := hook.Run(t.Context(), h, target()); err != nil || time.Since(start) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := hook.Run(ctx, h, target())
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 7*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

func TestOthers(t *testing.T) {
	expect(t, &corev1.LifecycleHandler{TcpSocket: &corev1.TCPSocketAction{}}, target(), "tcpSocket, which is not run")
	expect(t, &corev1.LifecycleHandler{}, target(), "no handler")
}
