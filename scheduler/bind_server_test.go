package scheduler_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/object"
	"monoplane.dev/scheduler"
)

// hooked is a connection that does something before its first binding, and counts the bindings. Only one pod may be
// bound.
type hooked struct {
	grpc.ClientConnInterface
	before func()
	binds  int
}

func (h *hooked) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if method == corev1rpc.Pods_Bind_FullMethodName {
		if h.binds++; h.binds == 1 {
			h.before()
		}
	}
	return h.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

// race is a real server on which something happens between decision and binding.
type race struct {
	testing.TB
	as func(name string, groups ...string) *client.Client
}

func (r race) admin() *client.Client { return r.as(authn.AdminName, authn.AdminsGroup) }

func (r race) agent() *client.Client { return r.as(authn.NodePrefix+"n1", authn.NodesGroup) }

func (r race) must(_ any, err error) {
	r.Helper()
	if err != nil {
		r.Error(err)
	}
}

// node changes n1, its status by its agent.
func (r race) node(status bool, change func(n *corev1.Node)) {
	r.Helper()
	n, err := r.admin().Nodes.Get(r.Context(), &metav1.GetRequest{Name: "n1"})
	r.must(nil, err)
	n = object.Clone(n)
	change(n)
	if status {
		r.must(r.agent().Nodes.UpdateStatus(r.Context(), &corev1rpc.UpdateNodeRequest{Object: n}))
	} else {
		r.must(r.admin().Nodes.Update(r.Context(), &corev1rpc.UpdateNodeRequest{Object: n}))
	}
}

// register makes n1 anew.
func (r race) register(cpu string) {
	r.Helper()
	n := newNode("n1", "cpu="+cpu, "memory=8Gi", "pods=10")
	n.Status.Capacity = n.Status.Allocatable
	r.must(r.agent().Nodes.Create(r.Context(), &corev1rpc.CreateNodeRequest{Object: n}))
}

// The real server refuses what was judged by an older pod or node, and the scheduler follows.
// spec: SCHED-3
func TestRealServerChangeBeforeBinding(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(r race)
		lands  string
	}{
		{"resize", func(r race) {
			r.must(r.admin().Pods.PatchResize(r.Context(), &metav1.PatchRequest{
				Namespace: "default", Name: "a", PatchType: "application/strategic-merge-patch+json",
				Patch: []byte(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"8"}}}]}}`),
			}))
		}, "n2"},
		{"taint", func(r race) { r.node(false, taint) }, "n2"},
		{"cordon", func(r race) { r.node(false, func(n *corev1.Node) { n.Spec.Unschedulable = true }) }, "n2"},
		{"shrink", func(r race) { r.node(true, shrink) }, "n2"},
		{"replace", func(r race) {
			r.must(r.admin().Nodes.Delete(r.Context(), &metav1.DeleteRequest{Name: "n1"}))
			r.register("1")
		}, "n2"},
		{"heartbeat", func(r race) {
			r.node(true, func(n *corev1.Node) {
				n.Status.Conditions = []*corev1.NodeCondition{{Type: "Ready", Status: "True", Reason: "KubeletReady"}}
			})
		}, "n1"},
		{"status", func(r race) {
			p, err := r.admin().Pods.Get(r.Context(), &metav1.GetRequest{Namespace: "default", Name: "a"})
			r.must(nil, err)
			r.must(r.as(authn.SchedulerName).Pods.PatchStatus(r.Context(), &metav1.PatchRequest{
				Namespace: "default", Name: "a", PatchType: "application/strategic-merge-patch+json",
				Patch: []byte(`{"metadata":{"uid":"` + p.GetMetadata().GetUid() + `"},` +
					`"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"x"}]}}`),
			}))
		}, "n1"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := apitest.Start(t)
			r := race{t, s.As}
			r.register("4")
			conn := &hooked{ClientConnInterface: s.Conn(apitest.User(authn.SchedulerName)), before: func() {
				x.change(r)
				registerNode(t, r.as, "n2") // much bigger: a new decision prefers it
			}}
			runScheduler(t, scheduler.Config{Client: client.New(conn), Seed: 1, InitialBackoff: 10 * time.Millisecond})
			p := realPod("a")
			p.Spec.Containers[0].Resources.Requests = quantities("cpu=2")
			r.must(r.admin().Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: p}))
			if at := await(t, r.admin(), 1)["a"]; at != x.lands {
				t.Errorf("on %q, want %q", at, x.lands)
			}
		})
	}
}
