package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/authn"

	authenticationv1 "monoplane.dev/api/authentication/v1"
	authenticationv1rpc "monoplane.dev/api/authentication/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// disk is a disk that can hang and fail.
type disk struct {
	mu     sync.Mutex
	b      bytes.Buffer
	err    error
	hang   chan struct{} // nil when it does not
	writes int
}

func (d *disk) Write(p []byte) (int, error) {
	d.mu.Lock()
	hang, err := d.hang, d.err
	d.mu.Unlock()
	if hang != nil {
		<-hang
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes++
	if err != nil {
		return 0, err
	}
	return d.b.Write(p)
}

func (d *disk) Close() error { return nil }

func (d *disk) set(hang chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hang, d.err = hang, err
}

// event is what tests look at.
type event struct {
	Kind, APIVersion, Level, AuditID, Stage, RequestURI, Verb, UserAgent string

	User             struct{ Username string }
	ImpersonatedUser *struct{ Username string }
	SourceIPs        []string
	ObjectRef        *struct{ Resource, Namespace, Name, UID, APIVersion string }
	ResponseStatus   *struct {
		Status, Reason, Message string
		Code                    int
	}
	RequestObject, ResponseObject            json.RawMessage
	RequestReceivedTimestamp, StageTimestamp string
	Annotations                              map[string]string
}

func (d *disk) events(t *testing.T) []event {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []event
	for line := range strings.Lines(d.b.String()) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.Kind != "Event" || e.APIVersion != "audit.k8s.io/v1" || len(e.AuditID) != 36 {
			t.Errorf("no event: %s", line)
		}
		list = append(list, e)
	}
	return list
}

func newLog(t *testing.T, d *disk, buffer int, policy string) (*audit.Log, *bytes.Buffer) {
	t.Helper()
	var told bytes.Buffer
	l, err := audit.NewLog(audit.Config{
		Policy: parse(t, policy), Writer: d, Buffer: buffer, Logger: slog.New(slog.NewTextHandler(&told, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return l, &told
}

var eve = &authn.User{Name: "eve", Groups: []string{"ops"}}

// request makes the record of one request that has ended.
func request(l *audit.Log, act string) {
	_, r := l.Begin(context.Background(), audit.Source{URI: "/api/v1/pods"},
		audit.Attributes{Verb: "list", Version: "v1", Objects: true, Resource: "pods"})
	r.Received(eve)
	if act != "" {
		r.Act(act)
	}
	r.Complete(200)
}

const all = "omitStages: [RequestReceived]\nrules: [{level: Metadata}]"

// A disk that hangs holds up nobody. What finds no room is counted, and the log says how much is missing; what must be
// recorded has room of its own.
func TestDiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hang := &disk{}, make(chan struct{})
		d.set(hang, nil)
		l, told := newLog(t, d, 4<<10, all)
		request(l, "")
		synctest.Wait() // the first line hangs
		for range 100 {
			request(l, "")
		}
		for range 3 {
			request(l, "exec")
		}
		d.set(nil, nil)
		close(hang)
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		kept, lost, acts := 0, 0, 0
		for _, e := range d.events(t) {
			if text := e.Annotations["audit.monoplane.dev/lost"]; text != "" {
				if _, err := fmt.Sscan(text, &lost); err != nil {
					t.Fatal(err)
				}
				continue
			}
			kept++
			if e.Annotations["audit.monoplane.dev/act"] == "exec" {
				acts++
			}
		}
		if kept+lost != 104 || lost == 0 || acts != 3 {
			t.Errorf("%d kept and %d lost of 104, and %d of 3 that must be kept", kept, lost, acts)
		}
		if !strings.Contains(told.String(), "audit events are lost") {
			t.Errorf("the server's log: %s", told)
		}
	})
}

// When even the room for what must be recorded is full, the server's log names what is lost. The end does not wait for
// ever.
func TestDiskThatHangsToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hang := &disk{}, make(chan struct{})
		d.set(hang, nil)
		l, told := newLog(t, d, 1<<10, all)
		request(l, "")
		synctest.Wait()
		for range 20 {
			request(l, "forced-deletion")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := l.Close(ctx); !errors.Is(err, audit.ErrStuck) {
			t.Errorf("close: %v", err)
		}
		if !strings.Contains(told.String(), "must be kept") || !strings.Contains(told.String(), "act=forced-deletion") {
			t.Errorf("the server's log: %s", told)
		}
		close(hang)
	})
}

// A disk that is full loses lines, which is said when there is room again.
func TestDiskThatIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		d.set(nil, errors.New("no space left on device"))
		l, told := newLog(t, d, 0, all)
		for range 3 {
			request(l, "")
			synctest.Wait()
		}
		d.set(nil, nil)
		request(l, "")
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		events := d.events(t)
		if len(events) != 2 || events[1].Annotations["audit.monoplane.dev/lost"] != "3" {
			t.Errorf("events %+v", events)
		}
		if n := strings.Count(told.String(), "cannot be written"); n != 1 {
			t.Errorf("the server's log says %d times that the disk is full: %s", n, told)
		}
	})
}

// The stages, levels and annotations of a request are Kubernetes'.
func TestStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		l, _ := newLog(t, d, 0, "rules: [{level: Metadata, verbs: [watch]}, {level: None}]")
		begin := func(verb string) *audit.Record {
			_, r := l.Begin(t.Context(), audit.Source{URI: "/api/v1/pods?watch=1", Address: "10.0.0.1", UserAgent: "kubectl"},
				audit.Attributes{Verb: verb, Version: "v1", Objects: true, Resource: "pods"})
			return r
		}
		r := begin("watch")
		r.Received(&authn.User{Name: "bob", Impersonator: eve})
		r.Judged(true, "RBAC: allowed")
		time.Sleep(1500 * time.Microsecond)
		r.Started(200)
		r.Started(200)
		r.Complete(200)
		r.Complete(200)
		silent := begin("list")
		silent.Received(eve)
		silent.Complete(200)
		refused := begin("watch")
		refused.Failed(apierrors.New(apierrors.Unauthorized, "Unauthorized").Status())
		refused.Complete(401)
		panicked := begin("watch")
		panicked.Received(eve)
		panicked.Panicked()
		panicked.Complete(500)
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range d.events(t) {
			text := e.Stage + " " + e.User.Username
			if e.ResponseStatus != nil {
				text += fmt.Sprint(" ", e.ResponseStatus.Code, e.ResponseStatus.Reason)
			}
			got = append(got, text)
		}
		want := []string{
			"RequestReceived eve", "ResponseStarted eve 200", "ResponseComplete eve 200", "ResponseStarted  401Unauthorized",
			"RequestReceived eve", "Panic eve 500",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("stages\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		e := d.events(t)[1]
		if e.ImpersonatedUser == nil || e.ImpersonatedUser.Username != "bob" || e.SourceIPs[0] != "10.0.0.1" ||
			e.UserAgent != "kubectl" || e.ObjectRef.Resource != "pods" || e.Level != "Metadata" ||
			e.Annotations["authorization.k8s.io/decision"] != "allow" ||
			e.Annotations["audit.monoplane.dev/act"] != "impersonation" ||
			e.RequestReceivedTimestamp != "2000-01-01T00:00:00.000000Z" || e.StageTimestamp != "2000-01-01T00:00:00.001500Z" {
			t.Errorf("event %+v", e)
		}
	})
}

// The code of an answer over HTTP is that of its header, whatever fails behind it: a client that hangs up, say. That
// the server has panicked is written all the same.
func TestWhatFailsBehindTheHeader(t *testing.T) {
	d := &disk{}
	l, _ := newLog(t, d, 0, "rules: [{level: Metadata}]")
	for _, fails := range []func(*audit.Record){
		func(r *audit.Record) { r.Response(nil, context.Canceled) },
		func(r *audit.Record) {
			r.Panicked()
			r.Failed(apierrors.NewInternal(nil).Status())
		},
	} {
		answer, r := l.HTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=1", nil))
		record := audit.From(r.Context())
		record.Received(eve)
		answer.WriteHeader(http.StatusOK)
		fails(record)
		answer.End()
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range d.events(t) {
		if e.Stage == "ResponseComplete" || e.Stage == "Panic" {
			got = append(got, fmt.Sprint(e.Stage, " ", e.ResponseStatus.Code))
		}
	}
	if want := []string{"ResponseComplete 200", "Panic 500"}; !slices.Equal(got, want) {
		t.Errorf("the ends are %q, want %q", got, want)
	}
}

// What must be recorded is, where the policy wants nothing at all.
func TestActsAreAlwaysRecorded(t *testing.T) {
	d := &disk{}
	l, _ := newLog(t, d, 0, "omitStages: [ResponseComplete]\nrules: [{level: None}]")
	request(l, "")
	request(l, "forced-deletion")
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	events := d.events(t)
	if len(events) != 1 || events[0].Annotations["audit.monoplane.dev/act"] != "forced-deletion" {
		t.Errorf("events %+v", events)
	}
}

// At the highest level the bodies are there, but not what Secrets hold, nor tokens.
func TestSecretsAreNeverWritten(t *testing.T) {
	const value, token = "c2VjcmV0LXZhbHVl", "eyJ-token"
	secret := func() *corev1.Secret {
		return &corev1.Secret{
			Metadata: &metav1.ObjectMeta{Name: "s", Namespace: "default", Uid: "1", Annotations: map[string]string{
				"kubectl.kubernetes.io/last-applied-configuration": `{"data":{"password":"` + value + `"}}`, "keep": "me",
			}, ManagedFields: []*metav1.ManagedFieldsEntry{{Manager: "kubectl"}}},
			Data: map[string][]byte{"password": []byte("secret-value")}, StringData: map[string]string{"other": "secret-value"},
		}
	}
	d := &disk{}
	l, _ := newLog(t, d, 0, "omitStages: [RequestReceived]\nrules: [{level: RequestResponse}]")
	stored := secret()
	for _, m := range []struct{ req, answer any }{
		{&corev1rpc.CreateSecretRequest{Object: secret()}, stored},
		{&metav1.ListRequest{}, &corev1.SecretList{Metadata: &metav1.ListMeta{}, Items: []*corev1.Secret{stored}}},
		{&metav1.PatchRequest{Patch: []byte(`{"data":{"password":"` + value + `"}}`)}, stored},
		{&corev1rpc.CreateTokenServiceAccountRequest{Object: &authenticationv1.TokenRequest{}},
			&authenticationv1.TokenRequest{Status: &authenticationv1.TokenRequestStatus{Token: token}}},
		{&authenticationv1rpc.CreateTokenReviewRequest{Object: &authenticationv1.TokenReview{
			Spec: &authenticationv1.TokenReviewSpec{Token: token}}}, nil},
	} {
		_, r := l.Begin(t.Context(), audit.Source{}, audit.Attributes{Objects: true, Resource: "secrets", Version: "v1"})
		r.Received(eve)
		r.Request(m.req)
		r.Response(m.answer, nil)
		r.Complete(200)
	}
	_, r := l.Begin(t.Context(), audit.Source{}, audit.Attributes{Objects: true, Resource: "pods", Version: "v1"})
	r.Received(eve)
	r.Request(&metav1.PatchRequest{Patch: []byte("metadata:\n  name: yaml\n")})
	r.Complete(200)
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := d.b.String()
	for _, bad := range []string{value, token, "secret-value"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q is written: %s", bad, text)
		}
	}
	events := d.events(t)
	if len(events) != 6 {
		t.Fatalf("%d events", len(events))
	}
	for _, want := range []string{
		`"data":{"password":""}`, `"stringData":{"other":""}`, `"keep":"me"`, `"manager":"kubectl"`,
	} {
		if !strings.Contains(string(events[0].RequestObject), want) {
			t.Errorf("request without %s: %s", want, events[0].RequestObject)
		}
	}
	if events[0].ObjectRef.Name != "s" || events[0].ObjectRef.UID != "1" {
		t.Errorf("object %+v", events[0].ObjectRef)
	}
	if events[2].RequestObject != nil || string(events[5].RequestObject) != `{"metadata":{"name":"yaml"}}` {
		t.Errorf("patches %s, %s", events[2].RequestObject, events[5].RequestObject)
	}
	if string(stored.Data["password"]) != "secret-value" || len(stored.Metadata.Annotations) != 2 {
		t.Error("the object itself was changed")
	}
}
