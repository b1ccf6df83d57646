package tokens_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	authenticationv1 "monoplane.dev/api/authentication/v1"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/nodeagent/tokens"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a real API server with a node, whose agent is the manager's.
type world struct {
	t      *testing.T
	server *apitest.Server
	m      *tokens.Manager
	log    bytes.Buffer

	mu    sync.Mutex
	calls int
	// fail is what the calls come to; hold, when it is not nil, is what they wait for.
	fail error
	hold chan struct{}
}

// run runs a test in virtual time.
func run(t *testing.T, cfg tokens.Config, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, server: apitest.Start(t)}
		w.server.React(func(ctx context.Context, method string, _ any) error {
			if method != corev1rpc.ServiceAccounts_CreateToken_FullMethodName {
				return nil
			}
			w.mu.Lock()
			w.calls++
			fail, hold := w.fail, w.hold
			w.mu.Unlock()
			if hold != nil {
				select {
				case <-hold:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return fail
		})
		cfg.Accounts = w.server.Agent("n").ServiceAccounts
		cfg.Logger = slog.New(slog.NewTextHandler(&w.log, nil))
		w.m = tokens.New(cfg)
		_, err := w.server.Admin().ServiceAccounts.Create(t.Context(), &corev1rpc.CreateServiceAccountRequest{
			Object: &corev1.ServiceAccount{Metadata: &metav1.ObjectMeta{Name: "builder", Namespace: "default"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		test(t, w)
		w.m.Close()
		if _, _, err := w.m.Token(t.Context(), w.pod("late"), "", 3607); !errors.Is(err, context.Canceled) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// pod puts a pod with tokens for the API server and for vault on the node.
func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	var sources []*corev1.VolumeProjection
	for _, audience := range []string{"", "vault"} {
		sources = append(sources, &corev1.VolumeProjection{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience, Path: "token-" + audience},
		})
	}
	pod := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default", Uid: "uid-" + name},
		Spec: &corev1.PodSpec{NodeName: "n", ServiceAccountName: "builder", Volumes: []*corev1.Volume{{
			Name: "t", VolumeSource: &corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}},
		}}},
	}
	key := store.Key{Kind: corev1.PodKind, Namespace: "default", Name: name}
	txn := store.Txn{Ops: []store.Op{{Key: key, Object: object.Clone(pod)}}}
	if _, err := w.server.Store.Commit(w.t.Context(), txn); err != nil {
		w.t.Fatal(err)
	}
	return pod
}

func (w *world) set(fail error, hold chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail, w.hold = fail, hold
}

func (w *world) token(pod *corev1.Pod, audience string) string {
	w.t.Helper()
	token, expires, err := w.m.Token(w.t.Context(), pod, audience, 3607)
	if err != nil {
		w.t.Fatal(err)
	}
	if left := time.Until(expires); left <= 0 || left > 3607*time.Second {
		w.t.Errorf("the token is valid for %v", left)
	}
	return token
}

func TestTokensAreKeptAndRenewed(t *testing.T) {
	run(t, tokens.Config{Seed: 1}, func(t *testing.T, w *world) {
		pod := w.pod("p")
		first := w.token(pod, "")
		u, _, err := w.server.Bearers.User(t.Context(), first, nil)
		if err != nil || u.Name != "system:serviceaccount:default:builder" ||
			u.Extra["authentication.kubernetes.io/pod-uid"][0] != "uid-p" {
			t.Errorf("the token is that of %v; error %v", u, err)
		}
		vault := w.token(pod, "vault")
		if vault == first {
			t.Error("two audiences have the same token")
		}
		if _, of, err := w.server.Bearers.User(t.Context(), vault, []string{"vault"}); err != nil || len(of) != 1 {
			t.Errorf("the token is for %v; error %v", of, err)
		}
		const life = 3607 * time.Second
		time.Sleep(life*4/5 - 11*time.Second)
		if w.token(pod, "") != first || w.calls != 2 {
			t.Errorf("a token was asked for too early; %d calls", w.calls)
		}
		time.Sleep(11 * time.Second)
		second := w.token(pod, "")
		if second == first || w.calls != 3 {
			t.Errorf("no new token after four fifths of the life; %d calls", w.calls)
		}
		// While there is no new one, the old one does.
		w.set(apierrors.New(apierrors.ServiceUnavailable, "down"), nil)
		time.Sleep(life * 9 / 10)
		if w.token(pod, "") != second {
			t.Error("got another token from a server that is down")
		}
		if log := w.log.String(); !strings.Contains(log, "could not be renewed") || strings.Contains(log, second) ||
			strings.Contains(log, second[strings.LastIndexByte(second, '.')+1:]) {
			t.Errorf("log %q", log)
		}
		time.Sleep(life / 10)
		if _, _, err := w.m.Token(t.Context(), pod, "", 3607); !apierrors.Is(err, apierrors.ServiceUnavailable) {
			t.Errorf("a token that has ended: %v", err)
		}
		w.set(nil, nil)
		if third := w.token(pod, ""); third == second {
			t.Error("a token that has ended was given out")
		}
	})
}

func TestLongTokensAreRenewedDaily(t *testing.T) {
	run(t, tokens.Config{}, func(t *testing.T, w *world) {
		pod := w.pod("p")
		get := func() string {
			token, _, err := w.m.Token(t.Context(), pod, "", 30*24*3600)
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
		first := get()
		time.Sleep(24*time.Hour - 11*time.Second)
		if get() != first {
			t.Error("renewed too early")
		}
		time.Sleep(11 * time.Second)
		if get() == first {
			t.Error("used for more than a day")
		}
	})
}

func TestOneRequestServesAll(t *testing.T) {
	run(t, tokens.Config{}, func(t *testing.T, w *world) {
		pod, hold := w.pod("p"), make(chan struct{})
		w.set(nil, hold)
		impatient, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, _, err := w.m.Token(impatient, pod, "", 3607)
			gaveUp <- err
		}()
		synctest.Wait()
		got := make(chan string, 10)
		for range cap(got) {
			go func() { got <- w.token(pod, "") }()
		}
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up got %v", err)
		}
		close(hold)
		first := <-got
		for range cap(got) - 1 {
			if <-got != first {
				t.Error("got different tokens")
			}
		}
		if w.calls != 1 {
			t.Errorf("%d calls", w.calls)
		}
		// A server that does not answer is not waited for without end.
		w.set(nil, make(chan struct{}))
		began := time.Now()
		if _, _, err := w.m.Token(t.Context(), pod, "vault", 3607); err == nil || time.Since(began) > time.Minute {
			t.Errorf("a server that hangs: %v after %v", err, time.Since(began))
		}
	})
}

func TestForgottenPods(t *testing.T) {
	run(t, tokens.Config{}, func(t *testing.T, w *world) {
		pod := w.pod("p")
		first := w.token(pod, "")
		w.m.Forget("uid-p")
		if w.token(pod, "") == first {
			t.Error("a forgotten token was given out")
		}
		// One that arrives after its pod was forgotten is not kept.
		hold := make(chan struct{})
		w.set(nil, hold)
		done := make(chan struct{})
		go func() { defer close(done); w.token(pod, "vault") }()
		synctest.Wait()
		w.m.Forget("uid-p")
		close(hold)
		<-done
		if n := tokens.Count(w.m); n != 0 {
			t.Errorf("%d tokens are kept of no pod", n)
		}
		w.set(nil, nil)
		none := w.pod("q")
		none.Spec.ServiceAccountName = ""
		if _, _, err := w.m.Token(t.Context(), none, "", 3607); err == nil {
			t.Error("a pod without a service account has a token")
		}
		other := w.pod("r")
		other.Metadata.Uid = "another"
		if _, _, err := w.m.Token(t.Context(), other, "", 3607); !apierrors.Is(err, apierrors.Conflict) {
			t.Errorf("another pod of the name: %v", err)
		}
		if n := tokens.Count(w.m); n != 0 {
			t.Errorf("%d failures are kept", n)
		}
	})
}

func TestRoomIsBounded(t *testing.T) {
	run(t, tokens.Config{Max: 3}, func(t *testing.T, w *world) {
		for i := range 10 {
			w.token(w.pod(fmt.Sprintf("p%d", i)), "")
			time.Sleep(time.Second)
			if n := tokens.Count(w.m); n > 3 {
				t.Fatalf("%d tokens are kept", n)
			}
		}
		// The newest are those that are kept.
		calls := w.calls
		w.token(w.pod("p9-again"), "vault")
		if _, _, err := w.m.Token(t.Context(), &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: "p9", Namespace: "default", Uid: "uid-p9"},
			Spec:     &corev1.PodSpec{ServiceAccountName: "builder"},
		}, "", 3607); err != nil || w.calls != calls+1 {
			t.Errorf("error %v, %d calls", err, w.calls-calls)
		}
		// When all are being asked for, one more is served, and not kept.
		w.m.Forget("uid-p8")
		w.m.Forget("uid-p9")
		w.m.Forget("uid-p9-again")
		pods := []*corev1.Pod{w.pod("a"), w.pod("b"), w.pod("c"), w.pod("d")}
		hold := make(chan struct{})
		w.set(nil, hold)
		var all sync.WaitGroup
		for _, p := range pods {
			all.Go(func() { w.token(p, "") })
		}
		synctest.Wait()
		close(hold)
		all.Wait()
		if n := tokens.Count(w.m); n != 3 {
			t.Errorf("%d tokens are kept", n)
		}
	})
}

// The wish itself is what the API is asked for.
func TestWhatIsAskedFor(t *testing.T) {
	run(t, tokens.Config{}, func(t *testing.T, w *world) {
		var asked *authenticationv1.TokenRequestSpec
		w.server.React(func(_ context.Context, method string, req any) error {
			if r, ok := req.(*corev1rpc.CreateTokenServiceAccountRequest); ok {
				asked = r.GetObject().GetSpec()
			}
			return nil
		})
		w.token(w.pod("p"), "vault")
		ref := asked.GetBoundObjectRef()
		if asked.GetExpirationSeconds() != 3607 || len(asked.GetAudiences()) != 1 || asked.GetAudiences()[0] != "vault" ||
			ref.GetKind() != "Pod" || ref.GetApiVersion() != "v1" || ref.GetName() != "p" || ref.GetUID() != "uid-p" {
			t.Errorf("asked for %v", asked)
		}
	})
}
