package serviceaccounttoken_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	authenticationv1 "monoplane.dev/api/authentication/v1"
	authenticationv1rpc "monoplane.dev/api/authentication/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/serviceaccounttoken"
	"monoplane.dev/object"
)

const (
	kind     = "kubernetes.io/service-account-token"
	ofName   = "kubernetes.io/service-account.name"
	ofUID    = "kubernetes.io/service-account.uid"
	robot    = "robot"
	user     = "system:serviceaccount:default:robot"
	audience = "https://kubernetes.default.svc.cluster.local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server with the controller.
type world struct {
	*testing.T
	c   *client.Client
	ca  atomic.Value
	log bytes.Buffer
}

// run calls f in a bubble with a world.
func run(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		server := apitest.Start(t)
		w := &world{T: t, c: server.Admin()}
		w.ca.Store("first")
		ctl, err := serviceaccounttoken.New(serviceaccounttoken.Config{
			Client: server.Controller("serviceaccount-token"), Tokens: server.Tokens,
			RootCA: func() []byte { return []byte(w.ca.Load().(string)) },
			Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ctl.Run(ctx) }()
		f(w)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// account makes the service account, and returns its uid.
func (w *world) account() string {
	w.Helper()
	a, err := w.c.ServiceAccounts.Create(w.Context(), &corev1rpc.CreateServiceAccountRequest{
		Object: &corev1.ServiceAccount{Metadata: &metav1.ObjectMeta{Name: robot, Namespace: "default"}},
	})
	if err != nil {
		w.Fatal(err)
	}
	return a.GetMetadata().GetUid()
}

// secret makes a Secret for a token of the account, and returns what becomes of it.
func (w *world) secret(name string, annotations map[string]string) *corev1.Secret {
	w.Helper()
	m := &metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{ofName: robot}}
	for k, v := range annotations {
		m.Annotations[k] = v
	}
	_, err := w.c.Secrets.Create(w.Context(), &corev1rpc.CreateSecretRequest{
		Object: &corev1.Secret{Metadata: m, Type: kind},
	})
	if err != nil {
		w.Fatal(err)
	}
	return w.filled(name)
}

// filled returns a Secret once the controller has had time; nil for none.
func (w *world) filled(name string) *corev1.Secret {
	w.Helper()
	time.Sleep(time.Minute)
	s, err := w.c.Secrets.Get(w.Context(), &metav1.GetRequest{Namespace: "default", Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// change changes a Secret, and returns what becomes of it.
func (w *world) change(name string, f func(s *corev1.Secret)) *corev1.Secret {
	w.Helper()
	s := object.Clone(w.filled(name))
	f(s)
	if _, err := w.c.Secrets.Update(w.Context(), &corev1rpc.UpdateSecretRequest{Object: s}); err != nil {
		w.Fatal(err)
	}
	return w.filled(name)
}

func (w *world) review(token string, audiences ...string) *authenticationv1.TokenReviewStatus {
	w.Helper()
	r, err := w.c.TokenReviews.Create(w.Context(), &authenticationv1rpc.CreateTokenReviewRequest{
		Object: &authenticationv1.TokenReview{Spec: &authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}},
	})
	if err != nil {
		w.Fatal(err)
	}
	if token != "" && strings.Contains(r.GetStatus().GetError(), token) {
		w.Error("the error repeats the token")
	}
	return r.GetStatus()
}

func (w *world) refused(token, why string, audiences ...string) {
	w.Helper()
	if s := w.review(token, audiences...); s.GetAuthenticated() || !strings.Contains(s.GetError(), why) {
		w.Errorf("got %v, expected no user and %q", s, why)
	}
}

// claims returns what a token says.
func claims(t *testing.T, token string) (said map[string]any) {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err == nil {
		err = json.Unmarshal(text, &said)
	}
	if err != nil {
		t.Fatal(err)
	}
	return said
}

func TestFilled(t *testing.T) {
	run(t, func(w *world) {
		uid := w.account()
		s := w.secret("s", nil)
		token := string(s.Data["token"])
		if len(s.Data) != 3 || string(s.Data["ca.crt"]) != "first" || string(s.Data["namespace"]) != "default" ||
			s.Metadata.Annotations[ofUID] != uid {
			w.Errorf("filled in: %v", s.GetMetadata())
		}
		r := w.review(token)
		u := r.GetUser()
		if !r.GetAuthenticated() || u.GetUsername() != user || u.GetUid() != uid || len(u.GetExtra()) != 0 ||
			strings.Join(u.GetGroups(), " ") != "system:serviceaccounts system:serviceaccounts:default system:authenticated" ||
			strings.Join(r.GetAudiences(), " ") != audience {
			w.Errorf("review: %v", r)
		}
		w.refused(token, "for the API server alone", "vault")
		want := map[string]any{
			"iss": "kubernetes/serviceaccount", "sub": user,
			"kubernetes.io/serviceaccount/namespace":            "default",
			"kubernetes.io/serviceaccount/secret.name":          "s",
			"kubernetes.io/serviceaccount/service-account.name": robot,
			"kubernetes.io/serviceaccount/service-account.uid":  uid,
		}
		if got := claims(w.T, token); !maps.Equal(got, want) {
			w.Errorf("claims %v, want %v: those of Kubernetes, without an end", got, want)
		}
		// What is missing comes back, and what is good stays.
		for _, key := range []string{"ca.crt", "namespace"} {
			if s = w.change("s", func(s *corev1.Secret) { delete(s.Data, key) }); len(s.Data) != 3 ||
				string(s.Data["token"]) != token {
				w.Errorf("without %s: %d keys", key, len(s.Data))
			}
		}
		s = w.change("s", func(s *corev1.Secret) { delete(s.Data, "token"); s.Data["mine"] = []byte("kept") })
		if len(s.Data) != 4 || len(s.Data["token"]) == 0 || string(s.Data["token"]) == token {
			w.Error("no other token came in place of the one that was removed")
		}
		w.refused(token, "its secret holds another")
		s = w.change("s", func(s *corev1.Secret) { s.Data["token"] = []byte("x.y.z") })
		if !w.review(string(s.Data["token"])).GetAuthenticated() {
			w.Error("a token that this server has not signed was left")
		}
		w.ca.Store("second")
		time.Sleep(time.Hour)
		if s = w.filled("s"); string(s.Data["ca.crt"]) != "second" {
			w.Error("the certificate is the old one")
		}
		if s = w.change("s", func(s *corev1.Secret) {
			s.Metadata.Labels = map[string]string{"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}
		}); s != nil {
			w.refused(string(s.Data["token"]), "label kubernetes.io/legacy-token-invalid-since")
		}
		if strings.Contains(w.log.String(), string(s.Data["token"])) || w.log.Len() > 0 {
			w.Errorf("logged: %s", w.log.String())
		}
	})
}

// A token ends with its Secret and with its account, and a Secret with the account that it names.
func TestEnds(t *testing.T) {
	run(t, func(w *world) {
		if w.secret("early", nil) != nil {
			w.Error("a Secret of nobody stays")
		}
		uid := w.account()
		if w.secret("wrong", map[string]string{ofUID: uid + "x"}) != nil {
			w.Error("a Secret of another account of the name stays")
		}
		token := string(w.secret("a", map[string]string{ofUID: uid}).Data["token"])
		at := &metav1.DeleteRequest{Namespace: "default", Name: "a"}
		w.change("a", func(s *corev1.Secret) { s.Metadata.Finalizers = []string{"example.com/hold"} })
		if _, err := w.c.Secrets.Delete(w.Context(), at); err != nil {
			w.Fatal(err)
		}
		w.refused(token, "its secret is gone") // though a finalizer holds it
		token = string(w.secret("b", nil).Data["token"])
		at = &metav1.DeleteRequest{Namespace: "default", Name: robot}
		if _, err := w.c.ServiceAccounts.Delete(w.Context(), at); err != nil {
			w.Fatal(err)
		}
		w.refused(token, " is gone") // the account, and soon the Secret
		w.account()
		if w.filled("b") != nil {
			w.Error("a Secret has outlived its account")
		}
		w.refused(token, "its secret is gone")
	})
}
