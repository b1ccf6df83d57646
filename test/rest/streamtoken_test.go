package rest_test

import (
	"context"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	kcorev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	testclock "k8s.io/utils/clock/testing"

	authenticationv1 "monoplane.dev/api/authentication/v1"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	rbacv1 "monoplane.dev/api/rbac/v1"
	rbacv1rpc "monoplane.dev/api/rbac/v1/rpc"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/kinds/define"
	front "monoplane.dev/apiserver/rest"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client/inproc"
)

// cats is every agent: each command writes what it reads.
type cats struct{ define.StreamSource }

func (cats) Exec(ctx context.Context, _ string, _ *nodev1rpc.ExecCall) (define.Conversation, error) {
	said := make(chan *corev1.StreamOutput, 1)
	said <- &corev1.StreamOutput{}
	return &cat{ctx, said}, nil
}

type cat struct {
	ctx  context.Context //nolint:containedctx // A conversation ends with it.
	said chan *corev1.StreamOutput
}

func (c *cat) Send(in *corev1.StreamInput) error {
	out := &corev1.StreamOutput{Data: in.GetData()}
	if in.GetEnd() {
		out.Status = &metav1.Status{Status: "Success"}
	}
	select {
	case c.said <- out:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

func (c *cat) Recv() (*corev1.StreamOutput, error) {
	select {
	case out := <-c.said:
		return out, nil
	case <-c.ctx.Done():
		return nil, c.ctx.Err()
	}
}

func (*cat) Close() {}

// As with kube-apiserver, who asks is known by his token when he asks: a command goes on when the token has expired,
// and the next one is refused.
//
// spec: CTR-9
func TestStreamOutlivesItsToken(t *testing.T) {
	clock := testclock.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	s := apitest.StartWith(t, apitest.Config{API: apiserver.Config{Clock: clock, Streams: cats{}}})
	h, err := front.New(front.Config{
		Conn: s.Conn(nil, inproc.PassValues()), Version: "1.36.3+monoplane",
		Authenticate: authn.New(authn.Config{Bearers: s.Bearers}).Authenticate,
		Logger:       slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewTLSServer(h)
	t.Cleanup(func() { h.Close(); hs.Close() })

	ctx, admin := t.Context(), s.Admin()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = admin.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec:     &corev1.PodSpec{NodeName: "n", Containers: []*corev1.Container{{Name: "c", Image: "i"}}},
	}})
	must(err)
	_, err = admin.ServiceAccounts.Create(ctx, &corev1rpc.CreateServiceAccountRequest{Object: &corev1.ServiceAccount{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "runner"},
	}})
	must(err)
	_, err = admin.Roles.Create(ctx, &rbacv1rpc.CreateRoleRequest{Object: &rbacv1.Role{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "runner"},
		Rules: []*rbacv1.PolicyRule{{
			Verbs: []string{"get", "create"}, ApiGroups: []string{""}, Resources: []string{"pods/exec"},
		}},
	}})
	must(err)
	_, err = admin.RoleBindings.Create(ctx, &rbacv1rpc.CreateRoleBindingRequest{Object: &rbacv1.RoleBinding{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "runner"},
		Subjects: []*rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "runner"}},
		RoleRef:  &rbacv1.RoleRef{ApiGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "runner"},
	}})
	must(err)

	q, err := scheme.ParameterCodec.EncodeParameters(&kcorev1.PodExecOptions{
		Command: []string{"cat"}, Stdin: true, Stdout: true,
	}, kcorev1.SchemeGroupVersion)
	must(err)
	u, err := url.Parse(hs.URL + "/api/v1/namespaces/default/pods/p/exec?" + q.Encode())
	must(err)
	for name, executor := range map[string]func(*rest.Config) (remotecommand.Executor, error){
		"WebSocket": func(c *rest.Config) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(c, http.MethodGet, u.String())
		},
		"SPDY": func(c *rest.Config) (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(c, http.MethodPost, u)
		},
	} {
		t.Run(name, func(t *testing.T) {
			seconds := int64(600)
			token, err := admin.ServiceAccounts.CreateToken(ctx, &corev1rpc.CreateTokenServiceAccountRequest{
				Namespace: "default", Name: "runner", Object: &authenticationv1.TokenRequest{
					Spec: &authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
				},
			})
			must(err)
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hs.Certificate().Raw})
			e, err := executor(&rest.Config{
				Host: hs.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}, BearerToken: token.GetStatus().GetToken(),
			})
			must(err)
			stdin, say := io.Pipe()
			hear, stdout := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				ended <- e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout})
			}()
			talk := func(word string) {
				t.Helper()
				if _, err := io.WriteString(say, word); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, len(word))
				if _, err := io.ReadFull(hear, got); err != nil || string(got) != word {
					t.Fatalf("%q, %v", got, err)
				}
			}
			talk("before")
			clock.Step(24 * time.Hour)
			talk("after")
			err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: io.Discard})
			if err == nil || !strings.Contains(err.Error(), "Unauthorized") {
				t.Errorf("with a token that has expired: %v", err)
			}
			_ = say.Close()
			if err := <-ended; err != nil {
				t.Errorf("the command ends with %v", err)
			}
		})
	}
}
