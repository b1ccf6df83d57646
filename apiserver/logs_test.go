package apiserver_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
)

// logs stands for the connection to the agents.
type logs struct {
	node string
	call *nodev1rpc.LogCall
}

func (l *logs) Logs(_ context.Context, node string, call *nodev1rpc.LogCall, send func([]byte) error) error {
	l.node, l.call = node, call
	for _, line := range []string{"one\n", "two\n"} {
		if err := send([]byte(line)); err != nil {
			return err
		}
	}
	return nil
}

// spec: CTR-8
func TestLogs(t *testing.T) {
	l := &logs{}
	c := start(t, func(cfg *apiserver.Config) { cfg.Logs = l })
	c.register("n1")
	p := c.boundPod("web", "n1")
	two := newPod("two")
	two.Spec.Containers = append(two.Spec.Containers, &corev1.Container{Name: "side", Image: "host"})
	c.createPod(two)

	read := func(req *corev1rpc.LogPodRequest) (string, error) {
		req.Namespace = "default"
		s := must(c.admin().Pods.Log(ctx(t), req))(t)
		out := ""
		for {
			body, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return out, nil
			}
			if err != nil {
				return out, err
			}
			out += string(body.Data)
		}
	}
	out, err := read(&corev1rpc.LogPodRequest{Name: "web", TailLines: ptr(int64(5)), SinceTime: "2026-03-01T11:00:00Z"})
	if err != nil || out != "one\ntwo\n" {
		t.Fatalf("%q, %v", out, err)
	}
	if l.node != "n1" || l.call.Uid != p.Metadata.Uid || l.call.Options.Container != "main" ||
		l.call.Options.GetTailLines() != 5 || l.call.Options.SinceTime == nil {
		t.Errorf("asked %s for %v", l.node, l.call)
	}
	// A pod without a node has said nothing yet.
	if out, err := read(&corev1rpc.LogPodRequest{Name: "two", Container: "side"}); err != nil || out != "" {
		t.Errorf("a pod that is not bound: %q, %v", out, err)
	}
	for _, x := range []struct {
		req  *corev1rpc.LogPodRequest
		want apierrors.Reason
	}{
		{&corev1rpc.LogPodRequest{Name: "none"}, apierrors.NotFound},
		{&corev1rpc.LogPodRequest{Name: "web", Container: "x"}, apierrors.BadRequest},
		{&corev1rpc.LogPodRequest{Name: "two"}, apierrors.BadRequest},
		{&corev1rpc.LogPodRequest{Name: "web", TailLines: ptr(int64(-1))}, apierrors.Invalid},
		{&corev1rpc.LogPodRequest{Name: "web", LimitBytes: ptr(int64(0))}, apierrors.Invalid},
		{&corev1rpc.LogPodRequest{Name: "web", SinceSeconds: ptr(int64(0))}, apierrors.Invalid},
		{&corev1rpc.LogPodRequest{Name: "web", SinceSeconds: ptr(int64(1)), SinceTime: "2026-03-01T11:00:00Z"},
			apierrors.Invalid},
		{&corev1rpc.LogPodRequest{Name: "web", SinceTime: "yesterday"}, apierrors.Invalid},
		{&corev1rpc.LogPodRequest{Name: "web", Stream: ptr("Both")}, apierrors.Invalid},
	} {
		if _, err := read(x.req); !apierrors.Is(err, x.want) {
			t.Errorf("%v: %v, want %s", x.req, err, x.want)
		}
	}
}
