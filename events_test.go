package monoplane_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"monoplane.dev"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// adminHTTP is an HTTP client with the administrator's certificate.
func adminHTTP(t *testing.T, dataDir string) *http.Client {
	t.Helper()
	dir := filepath.Join(dataDir, "pki")
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "admin.crt"), filepath.Join(dir, "admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool}, ForceAttemptHTTP2: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// frame is an event as a REST client reads it.
type frame struct {
	Type   string
	Object struct {
		Metadata struct{ Name, ResourceVersion string }
		Code     int
	}
}

// eventStream is a watch of all events over REST; status is not 200 when it was refused.
type eventStream struct {
	t      *testing.T
	status int
	lines  *json.Decoder
	cancel func()
}

func watchEvents(t *testing.T, c *http.Client, address, revision string) *eventStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	req, err := http.NewRequestWithContext(ctx, "GET",
		"https://"+address+"/api/v1/events?watch=true&resourceVersion="+revision, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return &eventStream{t: t, status: res.StatusCode, lines: json.NewDecoder(bufio.NewReader(res.Body)), cancel: func() {
		res.Body.Close()
		cancel()
	}}
}

func (s *eventStream) next() frame {
	s.t.Helper()
	var f frame
	if err := s.lines.Decode(&f); err != nil {
		s.t.Fatal(err)
	}
	return f
}

// Of more events than are kept the oldest go, many at a time. A client that reads them over REST sees each of them go
// exactly once, wherever its watch breaks off, or is told to list again. spec: OBJ-7, OBJ-13
func TestTooManyEvents(t *testing.T) {
	const n, most = 500, 100
	dir := t.TempDir()
	cluster := start(t, monoplane.Config{
		DataDir: dir, Runtime: monoplane.FakeRuntime(), Nodes: -1, Listen: "127.0.0.1:0", MaxEvents: most,
		UnsafeNoFsync: true,
	})
	events := cluster.Client().Events
	list, err := events.List(t.Context(), &metav1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	c := adminHTTP(t, dir)
	w := watchEvents(t, c, cluster.Address(), list.GetMetadata().GetResourceVersion())
	defer w.cancel()
	for i := range n {
		name := fmt.Sprintf("e%03d", i)
		if _, err := events.Create(t.Context(), &corev1rpc.CreateEventRequest{Namespace: "default", Object: &corev1.Event{
			Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"}, Reason: "Tested", Type: "Normal",
			InvolvedObject: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p", Uid: "u"},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	var seen []frame
	var gone []string
	for len(gone) < n-most {
		f := w.next()
		seen = append(seen, f)
		if f.Type == "DELETED" {
			gone = append(gone, f.Object.Metadata.Name)
		}
	}
	for i, name := range gone {
		if name != fmt.Sprintf("e%03d", i) {
			t.Fatalf("deletion %d is of %s", i, name)
		}
	}
	exact, expired := 0, 0
	for i := range seen[:len(seen)-1] {
		from := seen[i].Object.Metadata.ResourceVersion
		again := watchEvents(t, c, cluster.Address(), from)
		switch again.status {
		case http.StatusOK:
			exact++
			for _, want := range seen[i+1 : min(i+4, len(seen))] {
				if got := again.next(); got != want {
					t.Fatalf("after event %d (%+v) comes %+v, want %+v", i, seen[i], got, want)
				}
			}
		case http.StatusGone:
			expired++
			// Only among deletions of one revision.
			here, _ := strconv.Atoi(from)
			then, _ := strconv.Atoi(seen[i+1].Object.Metadata.ResourceVersion)
			if seen[i+1].Type != "DELETED" || then > here+1 {
				t.Errorf("after event %d (%+v) it cannot be resumed, though %+v comes next", i, seen[i], seen[i+1])
			}
		default:
			t.Fatalf("status %d", again.status)
		}
		again.cancel()
	}
	t.Logf("%d resumes were exact, %d expired", exact, expired)
	if exact < n/2 || expired == 0 {
		t.Error("too few resumes")
	}
	if list, err = events.List(t.Context(), &metav1.ListRequest{}); err != nil || len(list.GetItems()) != most {
		t.Errorf("%d events are left, %v", len(list.GetItems()), err)
	}
	if slices.ContainsFunc(list.GetItems(), func(e *corev1.Event) bool {
		return slices.Contains(gone,
			e.GetMetadata().GetName())
	}) {
		t.Error("a deleted event is listed")
	}
}
