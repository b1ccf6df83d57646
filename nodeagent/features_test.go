package nodeagent_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent/runtime/fake"
)

// able is a runtime that says what it can do, or nothing at all.
type able struct {
	*fake.Runtime

	mu   sync.Mutex
	says *runtimeapi.StatusResponse
	err  error
}

func (a *able) Status(
	ctx context.Context, req *runtimeapi.StatusRequest,
) (*runtimeapi.StatusResponse, error) {
	out, err := a.Runtime.Status(ctx, req)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		out.RuntimeHandlers, out.Features, err = a.says.GetRuntimeHandlers(), a.says.GetFeatures(), a.err
	}
	return out, err
}

func (a *able) set(err error, features *runtimeapi.RuntimeFeatures, handlers ...*runtimeapi.RuntimeHandler) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.says, a.err = &runtimeapi.StatusResponse{RuntimeHandlers: handlers, Features: features}, err
}

// offers returns what the node reports of its runtime, a line each.
func (w *world) offers() string {
	w.t.Helper()
	st := w.node().GetStatus()
	text := ""
	for _, h := range st.GetRuntimeHandlers() {
		f := h.GetFeatures()
		text += fmt.Sprintf("%q %t %t\n", h.GetName(), f.GetRecursiveReadOnlyMounts(), f.GetUserNamespaces())
		if f == nil || f.RecursiveReadOnlyMounts == nil || f.UserNamespaces == nil {
			text += "something is not said\n"
		}
	}
	if f := st.GetFeatures(); f != nil {
		text += fmt.Sprintf("groups %t\n", f.GetSupplementalGroupsPolicy())
	}
	return text
}

// The node reports what its runtime says that it can do, as a kubelet does: from its registration on, in one order,
// and also while the runtime does not answer.
//
// spec: NODE-1
func TestFeaturesAreReported(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cri.Stop()
		a := &able{Runtime: w.rt}
		w.cri = inproc.NewServer(nil, nil)
		runtimeapi.RegisterRuntimeServiceServer(w.cri, a)
		runtimeapi.RegisterImageServiceServer(w.cri, w.rt)
		conn := w.cri.Conn()
		w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)

		usual := &runtimeapi.RuntimeHandler{Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}}
		silent := &runtimeapi.RuntimeHandler{Name: "kata"}
		groups := &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}
		a.set(nil, groups, silent, usual)
		w.start()
		time.Sleep(time.Second) // registered, and no beat yet
		want := "\"\" true false\n\"kata\" false false\ngroups true\n"
		if got := w.offers(); got != want {
			t.Errorf("registered with\n%swant\n%s", got, want)
		}
		time.Sleep(report)
		writes := w.api.Calls(corev1rpc.Nodes_UpdateStatus_FullMethodName)
		a.set(nil, groups, usual, silent) // in another order
		time.Sleep(report)
		if n := w.api.Calls(corev1rpc.Nodes_UpdateStatus_FullMethodName) - writes; n != 1 || w.offers() != want {
			t.Errorf("the status was written %d times, want once, with\n%s", n, w.offers())
		}
		a.set(context.DeadlineExceeded, nil)
		time.Sleep(report)
		if got := w.offers(); got != want {
			t.Errorf("while it does not answer the node has\n%swant\n%s", got, want)
		}
		a.set(nil, nil)
		time.Sleep(report)
		if got := w.offers(); got != "" {
			t.Errorf("of a runtime that says nothing the node has\n%s", got)
		}
	})
}
