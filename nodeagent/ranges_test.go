package nodeagent_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
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
	// takes is how long telling it takes until it took something, and begun how often somebody has begun to. Set takes
	// while there is no agent.
	takes time.Duration
	begun int
}

func (r *ranged) UpdateRuntimeConfig(
	ctx context.Context, req *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun++
	if r.takes > 0 && len(r.told) == 0 {
		r.mu.Unlock()
		select {
		case <-time.After(r.takes):
		case <-ctx.Done():
		}
		r.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if r.refuses > 0 {
		r.refuses--
		return nil, errors.New("not now")
	}
	r.told = append(r.told, req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr())
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

func (r *ranged) Status(ctx context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	r.mu.Lock()
	silent, lacks := r.silent, r.takes > 0 && len(r.told) == 0
	r.mu.Unlock()
	if silent {
		return nil, errors.New("it is being restarted")
	}
	got, err := r.Runtime.Status(ctx, req)
	if lacks {
		got.GetStatus().Conditions = []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true},
			{Type: runtimeapi.NetworkReady, Reason: "NetworkPluginNotReady", Message: "it is being made"},
		}
	}
	return got, err
}

// ranged puts a ranged in the place of the runtime.
func (w *world) ranged() *ranged {
	w.cri.Stop()
	r := &ranged{Runtime: w.rt}
	w.cri = inproc.NewServer(nil, nil)
	runtimeapi.RegisterRuntimeServiceServer(w.cri, r)
	runtimeapi.RegisterImageServiceServer(w.cri, r)
	conn := w.cri.Conn()
	w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	return r
}

// giveRanges gives the node ranges of addresses.
func (w *world) giveRanges() {
	w.t.Helper()
	n := w.node().Clone()
	n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.9.0.0/24", []string{"10.9.0.0/24", "fd00:9::/64"}
	if _, err := w.c.Nodes.Update(w.t.Context(), &corev1rpc.UpdateNodeRequest{Name: nodeName, Object: n}); err != nil {
		w.t.Fatal(err)
	}
}

// The runtime is told the ranges of the pods' addresses once when the node gets them, again when it did not take them,
// and again when it may have forgotten them.
//
// spec: NET-1
func TestRangesAreTold(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.ranged()
		r.refuses = 1
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
		w.giveRanges()
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

// An agent that ends while the runtime is being told has nothing to say of it: who tells it again is the next one.
func TestRangesAtTheEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.ranged()
		w.start()
		w.giveRanges()
		w.kill()
		r.takes = time.Hour
		said := w.logged(slog.LevelWarn)
		w.begin()
		synctest.Wait() // The agent waits for the runtime now.
		w.kill()
		if text := said.String(); strings.Contains(text, "range") {
			t.Error(text)
		}
	})
}

// A runtime that takes longer for the network of its pods than a heartbeat may take is told once, goes on with it
// while the node's heartbeats do, and the node is ready as soon as it is done. One that forgets meanwhile what it was
// told is told again.
//
// spec: NET-1, NODE-1
func TestRangesThatTakeLong(t *testing.T) {
	const takes = 95 * time.Second
	for name, forgets := range map[string]bool{"takes them": false, "forgets them": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				r := w.ranged()
				r.takes = takes
				w.start()
				w.giveRanges()
				begun := time.Now()
				time.Sleep(takes / 2)
				if forgets {
					r.mu.Lock()
					r.silent = true
					r.mu.Unlock()
					time.Sleep(15 * time.Second)
					r.mu.Lock()
					r.silent = false
					r.mu.Unlock()
				}
				time.Sleep(takes - time.Since(begun) - time.Second)
				if got := w.agent.Unready(); !strings.Contains(got, "it is being made") {
					t.Errorf("while the network is being made the node says %q", got)
				}
				if age := time.Since(renewed(w.lease())); age > 15*time.Second {
					t.Errorf("the node's last heartbeat is %v old", age)
				}
				time.Sleep(2 * time.Second)
				if got := w.agent.Unready(); got != "" {
					t.Errorf("when the network is made the node says %q", got)
				}
				time.Sleep(10 * time.Minute)
				r.mu.Lock()
				defer r.mu.Unlock()
				want := 1
				if forgets {
					want = 2
				}
				if r.begun != want || len(r.told) != want {
					t.Errorf("the runtime was told %d times and took it %d times, want %d", r.begun, len(r.told), want)
				}
			})
		})
	}
}
