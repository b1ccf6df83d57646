package nodeagent_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1 "monoplane.dev/api/node/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/client/inproc"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/runtime/fake"
)

// configured is a runtime that knows handlers, and remembers the last one that it was asked for.
type configured struct {
	*fake.Runtime
	asked atomic.Value
}

// RunPodSandbox implements runtimeapi.RuntimeServiceServer.
func (r *configured) RunPodSandbox(
	ctx context.Context, req *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	r.asked.Store(req.GetRuntimeHandler())
	return r.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: req.GetConfig()})
}

// A pod of a runtime class is run by the class's handler; a runtime that does not know it says so, and the pod waits.
//
// spec: LIFE-8
func TestRuntimeClassNamesTheHandler(t *testing.T) {
	ofClass := edit(func(p *corev1.Pod) { p.Spec.RuntimeClassName = proto.String("vm") })
	for name, known := range map[string]bool{"known": true, "unknown": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				class := &nodev1.RuntimeClass{Metadata: &metav1.ObjectMeta{Name: "vm"}, Handler: "kata"}
				_, err := w.c.RuntimeClasses.Create(w.t.Context(), &nodev1rpc.CreateRuntimeClassRequest{Object: class})
				if err != nil {
					t.Fatal(err)
				}
				rt := &configured{Runtime: w.rt}
				if known {
					cri := inproc.NewServer(nil, nil)
					defer cri.Stop()
					runtimeapi.RegisterRuntimeServiceServer(cri, rt)
					w.cfg.Runtime = runtimeapi.NewRuntimeServiceClient(cri.Conn())
				}
				recorder := record.New(record.Config{Events: w.c.Events, Controller: "kubelet", Instance: nodeName})
				ctx, stop := context.WithCancel(w.t.Context())
				ended := make(chan error, 1)
				go func() { ended <- recorder.Run(ctx) }()
				defer func() { stop(); <-ended }()
				w.cfg.Recorder = recorder
				w.start()
				w.create("a", ofClass)
				w.settle()
				if known {
					w.phase("a", "Running")
					if got := rt.asked.Load(); got != "kata" {
						w.t.Errorf("handler %v", got)
					}
					return
				}
				w.phase("a", "Pending")
				events, err := w.c.Events.List(w.t.Context(), &metav1.ListRequest{})
				if err != nil {
					w.t.Fatal(err)
				}
				if !slices.ContainsFunc(events.Items, func(e *corev1.Event) bool {
					return e.Reason == "FailedCreatePodSandBox" && e.Type == "Warning" &&
						strings.Contains(e.Message, `no runtime handler "kata" is configured`)
				}) {
					w.t.Errorf("events %v", events.Items)
				}
				w.empty()
			})
		})
	}
}
