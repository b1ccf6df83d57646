package nodeagent_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent/runtime/fake"
)

// ranged is a runtime that notes which ranges it is told of, and refuses some tellings.
type ranged struct {
	*fake.Runtime

	mu      sync.Mutex
	told    []string
	refuses int
	silent  bool
}

func (r *ranged) UpdateRuntimeConfig(
	_ context.Context, req *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuses > 0 {
		r.refuses--
		return nil, errors.New("not now")
	}
	r.told = append(r.told, req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr())
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

func (r *ranged) Status(ctx context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	r.mu.Lock()
	silent := r.silent
	r.mu.Unlock()
	if silent {
		return nil, errors.New("it is being restarted")
	}
	return r.Runtime.Status(ctx, req)
}

// The runtime is told the ranges of the pods' addresses once when the node gets them, again when it did not take them,
// and again when it may have forgotten them.
//
// spec: NET-1
func TestRangesAreTold(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cri.Stop()
		r := &ranged{Runtime: w.rt, refuses: 1}
		w.cri = inproc.NewServer(nil, nil)
		runtimeapi.RegisterRuntimeServiceServer(w.cri, r)
		runtimeapi.RegisterImageServiceServer(w.cri, r)
		conn := w.cri.Conn()
		w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
		w.start()
		is := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if !slices.Equal(r.told, want) {
				t.Errorf("%s: the runtime was told %q, want %q", when, r.told, want)
			}
		}
		time.Sleep(time.Minute)
		is("without ranges")
		n, err := w.c.Nodes.Get(w.t.Context(), &metav1.GetRequest{Name: nodeName})
		if err != nil {
			t.Fatal(err)
		}
		n = n.Clone()
		n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.9.0.0/24", []string{"10.9.0.0/24", "fd00:9::/64"}
		if _, err := w.c.Nodes.Update(w.t.Context(), &corev1.UpdateNodeRequest{Name: nodeName, Object: n}); err != nil {
			t.Fatal(err)
		}
		is("while it refuses")
		time.Sleep(time.Minute)
		is("when it took them", "10.9.0.0/24,fd00:9::/64")
		time.Sleep(time.Hour)
		is("later", "10.9.0.0/24,fd00:9::/64")

		r.mu.Lock()
		r.silent = true
		r.mu.Unlock()
		time.Sleep(time.Minute)
		r.mu.Lock()
		r.silent, r.told = false, nil
		r.mu.Unlock()
		time.Sleep(time.Minute)
		is("after a restart", "10.9.0.0/24,fd00:9::/64")
	})
}
