package nodeagent_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent/runtime/fake"
)

// lax is a runtime that cannot enforce what the containers of one name ask for, and says so.
type lax struct {
	*fake.Runtime

	name string
}

func (l lax) ContainerStatus(
	ctx context.Context, req *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	out, err := l.Runtime.ContainerStatus(ctx, req)
	if err == nil && out.GetStatus().GetMetadata().GetName() == l.name {
		out.Info = map[string]string{"warnings": `["the memory limit is not enforced: nobody may","the cpu limit is not"]`}
	}
	return out, err
}

// What a runtime says that it cannot enforce is an event of the pod, once for each start, and none of others.
//
// spec: CTR-10
func TestUnenforcedLimitsAreEvents(t *testing.T) {
	recording(t, func(w *world) {
		w.cri.Stop()
		w.cri = inproc.NewServer(nil, nil)
		runtimeapi.RegisterRuntimeServiceServer(w.cri, lax{w.rt, "lax"})
		runtimeapi.RegisterImageServiceServer(w.cri, w.rt)
		conn := w.cri.Conn()
		w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
		w.start()
		w.create("a", containers("lax", "other"))
		time.Sleep(2 * beat)
		var got []string
		for _, e := range w.events() {
			if strings.HasPrefix(e, "NotEnforced: ") {
				got = append(got, e)
			}
		}
		slices.Sort(got)
		want := []string{"NotEnforced: Container lax: the cpu limit is not",
			"NotEnforced: Container lax: the memory limit is not enforced: nobody may"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// What no pod can do on a node is an event of the node; where they can do everything, there is none.
//
// spec: NET-1
func TestLimitsOfTheNodeAreAnEvent(t *testing.T) {
	for _, limits := range [][]string{nil, {"Pods cannot ping.", "They have one user."}} {
		recording(t, func(w *world) {
			w.cfg.Limits = limits
			w.start()
			time.Sleep(2 * beat)
			var got, want []string
			for _, e := range w.events() {
				if strings.HasPrefix(e, "NotEnforced: ") {
					got = append(got, e)
				}
			}
			if limits != nil {
				want = []string{"NotEnforced: Pods cannot ping. They have one user."}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
