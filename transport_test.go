package monoplane_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"monoplane.dev"
	authenticationv1 "monoplane.dev/api/authentication/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	"monoplane.dev/apiserver/local"
)

// ask makes a request through a cluster's transport and returns the answer, whose body the caller closes.
func ask(t *testing.T, c *monoplane.Cluster, method, url, token, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.Transport().RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// told is the text of an answer with a code.
func told(t *testing.T, res *http.Response, code int) string {
	t.Helper()
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != code {
		t.Errorf("%s, %v: %s", res.Status, err, b)
	}
	return string(b)
}

// Without a socket the REST API answers whom it knows, watches bring what happens when it does, and all of it ends
// with the cluster, in virtual time.
func TestTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := monoplane.Start(t.Context(), monoplane.Config{
			DataDir: t.TempDir(), Runtime: monoplane.FakeRuntime(), UnsafeNoFsync: true, Nodes: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		const whoami = "http://any/apis/authentication.k8s.io/v1/selfsubjectreviews"
		if got := told(t, ask(t, c, "POST", whoami, "", "{}"), 201); !strings.Contains(got, "system:masters") {
			t.Errorf("who asks without a token is %s", got)
		}
		time.Sleep(time.Second) // the account of the namespace is made meanwhile
		token, err := c.Client().ServiceAccounts.CreateToken(t.Context(), &corev1rpc.CreateTokenServiceAccountRequest{
			Namespace: "default", Name: "default", Object: &authenticationv1.TokenRequest{},
		})
		if err != nil {
			t.Fatal(err)
		}
		safe := strings.Replace(whoami, "http:", "https:", 1)
		if got := told(t, ask(t, c, "POST", safe, token.GetStatus().GetToken(), "{}"),
			201); !strings.Contains(got, "system:serviceaccount:default:default") {
			t.Errorf("who asks with a token is %s", got)
		}
		told(t, ask(t, c, "POST", whoami, "of nobody", "{}"), 401)

		const maps = "http://any/api/v1/namespaces/default/configmaps"
		watch := ask(t, c, "GET", maps+"?watch=1&fieldSelector=metadata.name%3Da", "", "")
		defer watch.Body.Close()
		events := bufio.NewReader(watch.Body)
		for _, name := range []string{"a", "b"} {
			told(t, ask(t, c, "POST", maps, "", `{"metadata":{"name":"`+name+`"}}`), 201)
		}
		told(t, ask(t, c, "DELETE", maps+"/a", "", ""), 200)
		for _, want := range []string{"ADDED", "DELETED"} {
			line, err := events.ReadBytes('\n')
			var ev struct {
				Type   string
				Object struct{ Metadata struct{ Name string } }
			}
			err = errors.Join(err, json.Unmarshal(line, &ev))
			if err != nil || ev.Type != want || ev.Object.Metadata.Name != "a" {
				t.Errorf("%v: %s, want %s", err, line, want)
			}
		}
		time.Sleep(time.Hour) // connections that nobody uses are closed, the watch is not
		told(t, ask(t, c, "GET", maps+"/b", "", ""), 200)

		// Many at once make more connections than are used.
		var many sync.WaitGroup
		for range 50 {
			many.Go(func() { told(t, ask(t, c, "GET", maps+"/b", "", ""), 200) })
		}
		many.Wait()
		begin := time.Now()
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the end took %v", took)
		}
		if b, err := io.ReadAll(events); err != nil || len(b) > 0 {
			t.Errorf("the watch ended with %q, %v", b, err)
		}
		r, err := http.NewRequestWithContext(t.Context(), "GET", maps, nil)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := c.Transport().RoundTrip(r); !errors.Is(err, local.ErrStopped) {
			t.Errorf("after the end: %v, %v", res, err)
		}
	})
}
