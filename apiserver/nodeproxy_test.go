package apiserver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/authn"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
)

// documents stands for the agents.
type documents struct{ asked []string }

func (d *documents) Document(_ context.Context, node string, call *nodev1rpc.DocumentCall) (*nodev1rpc.Document,
	error) {
	d.asked = append(d.asked, node+" "+call.GetPath()+" "+call.GetQuery())
	if call.GetPath() == "/pods" {
		return &nodev1rpc.Document{ContentType: "application/json", Body: bytes.Repeat([]byte("x"), 1<<20)}, nil
	}
	return &nodev1rpc.Document{ContentType: "text/plain", Body: []byte("ok")}, nil
}

// Who may see a document gets it from the agent of the node, whole; nobody else makes the server ask.
//
// spec: OBJ-15
func TestNodeProxy(t *testing.T) {
	d := &documents{}
	c := start(t, func(cfg *apiserver.Config) { cfg.Documents = d })
	c.register("n1")
	monitoring := &authn.User{Name: "prometheus", Groups: []string{authn.MonitoringGroup}}
	jane := &authn.User{Name: "jane", Groups: []string{authn.AuthenticatedGroup}}
	for _, x := range []struct {
		who        client
		node, path string
		want       apierrors.Reason
		size       int
	}{
		{c.admin(), "n1", "healthz", "", 2},
		{c.admin(), "n1", "/pods/", "", 1 << 20},
		{c.admin(), "none", "pods", apierrors.NotFound, 0},
		{c.as(monitoring), "n1", "stats/summary?a=b", "", 2},
		{c.as(monitoring), "n1", "stats/../pods", apierrors.Forbidden, 0},
		{c.agent("n1"), "n1", "stats/summary", apierrors.Forbidden, 0},
		{c.as(jane), "n1", "healthz", apierrors.Forbidden, 0},
		{c.as(nil), "n1", "healthz", apierrors.Unauthorized, 0},
	} {
		stream := must(x.who.Nodes.Proxy(ctx(t), &corev1rpc.ProxyNodeRequest{Name: x.node, Path: x.path}))(t)
		size := 0
		var err error
		for err == nil {
			body, end := stream.Recv()
			size, err = size+len(body.GetData()), end
		}
		if x.want == "" && !errors.Is(err, io.EOF) || x.want != "" && !apierrors.Is(err, x.want) || size != x.size {
			t.Errorf("%s of %s: %d bytes, %v; want %d, %s", x.path, x.node, size, err, x.size, x.want)
		}
	}
	want := []string{"n1 /healthz ", "n1 /pods ", "n1 /stats/summary a=b"}
	if len(d.asked) != len(want) || d.asked[0] != want[0] || d.asked[1] != want[1] || d.asked[2] != want[2] {
		t.Errorf("agents were asked for %q", d.asked)
	}
}
