package nodeagent_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent/runtime/fake"
)

// gallery is a runtime with images, or one that fails to list them: with down, or, when slow, by saying nothing.
type gallery struct {
	*fake.Runtime

	mu     sync.Mutex
	images []*runtimeapi.Image
	down   error
	slow   bool
	asked  int
	held   time.Duration // the longest time that it was waited for
}

func (g *gallery) ListImages(
	ctx context.Context, _ *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	g.mu.Lock()
	g.asked++
	images, down, slow := g.images, g.down, g.slow
	g.mu.Unlock()
	if slow {
		began := time.Now()
		<-ctx.Done()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.held = max(g.held, time.Since(began))
		return nil, ctx.Err()
	}
	return &runtimeapi.ListImagesResponse{Images: images}, down
}

func (g *gallery) set(images []*runtimeapi.Image, down error, slow bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.images, g.down, g.slow = images, down, slow
}

func (g *gallery) longest() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

func (g *gallery) calls() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

// makeGallery puts a gallery in the place of the world's runtime.
func makeGallery(w *world, images ...*runtimeapi.Image) *gallery {
	w.cri.Stop()
	g := &gallery{Runtime: w.rt, images: images}
	w.cri = inproc.NewServer(nil, nil)
	runtimeapi.RegisterRuntimeServiceServer(w.cri, g)
	runtimeapi.RegisterImageServiceServer(w.cri, g)
	conn := w.cri.Conn()
	w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	return g
}

func image(size uint64, tags []string, digests ...string) *runtimeapi.Image {
	return &runtimeapi.Image{Size: size, RepoTags: tags, RepoDigests: digests}
}

// images returns what the node reports, as "size: names".
func (w *world) images() []string {
	w.t.Helper()
	var out []string
	for _, i := range w.node().GetStatus().GetImages() {
		out = append(out, fmt.Sprintf("%d: %s", i.GetSizeBytes(), strings.Join(i.GetNames(), " ")))
	}
	return out
}

// sees checks what the node reports.
func (w *world) sees(want ...string) {
	w.t.Helper()
	if got := w.images(); !slices.Equal(got, want) {
		w.t.Errorf("after %s the images are %q, want %q", time.Since(w.began), got, want)
	}
}

// Times at which a first beat, a next beat and a next report of the status have passed.
const (
	beat   = 11 * time.Second
	report = 5*time.Minute + beat
)

// The node reports the names and sizes of its images, the largest first, whatever the order of the runtime's. They are
// listed with the reports of the status, and nothing is written when they are the same. spec: NODE-1
func TestImagesAreReported(t *testing.T) {
	inWorld(t, func(w *world) {
		all := []*runtimeapi.Image{
			image(7, []string{"b:2", "b:1"}, "b@sha256:1", "b@sha256:0"),
			image(0, []string{"host:latest"}),
			image(900, nil), // untagged by a newer one: nothing to name it by
			image(7, []string{"a:1"}),
			image(20, nil, "c@sha256:2"),
			image(8, []string{"d:6", "d:5", "d:4", "d:3", "d:2", "d:1"}, "d@sha256:3"),
			image(math.MaxUint64, []string{"huge:1"}),
		}
		want := []string{
			"9223372036854775807: huge:1", "20: c@sha256:2", "8: d:1 d:2 d:3 d:4 d:5", "7: a:1",
			"7: b:1 b:2 b@sha256:0 b@sha256:1", "0: host:latest",
		}
		g := makeGallery(w, all...)
		w.start()
		time.Sleep(beat)
		w.sees(want...)

		writes := w.api.Calls(corev1rpc.Nodes_UpdateStatus_FullMethodName)
		turned := slices.Clone(all)
		slices.Reverse(turned)
		turned[6] = image(7, []string{"b:1", "b:2"}, "b@sha256:0", "b@sha256:1")
		g.set(turned, nil, false)
		time.Sleep(report)
		w.sees(want...)
		if n := w.api.Calls(corev1rpc.Nodes_UpdateStatus_FullMethodName) - writes; n != 1 {
			t.Errorf("the status was written %d times, want once, since the images are the same", n)
		}
		if n := g.calls(); n != 2 {
			t.Errorf("the images were listed %d times in 32 beats, want twice", n)
		}

		g.set(all[:1], nil, false)
		time.Sleep(report)
		w.sees("7: b:1 b:2 b@sha256:0 b@sha256:1")
		g.set(nil, nil, false)
		time.Sleep(report)
		w.sees()
	})
}

// However many images there are, the node reports the 50 largest. spec: NODE-1
func TestImagesAreBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		var all []*runtimeapi.Image
		var want []string
		for i := range 60 {
			size := i * 37 % 60 // each size once, in no order
			all = append(all, image(uint64(size), []string{fmt.Sprintf("x:%d", size)}))
			if i < 50 {
				want = append(want, fmt.Sprintf("%d: x:%d", 59-i, 59-i))
			}
		}
		makeGallery(w, all...)
		w.start()
		time.Sleep(beat)
		w.sees(want...)
	})
}

// A runtime that does not list its images, at once or ever, keeps the node neither from registering nor from beating,
// and leaves what was reported; the log says so once each time it begins. spec: NODE-1
func TestImagesAreNotListed(t *testing.T) {
	for name, fail := range map[string]func(g *gallery){
		"fails": func(g *gallery) { g.set(nil, status.Error(codes.Unavailable, "no images"), false) },
		"hangs": func(g *gallery) { g.set(nil, nil, true) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var logged bytes.Buffer // the handler writes one line at a time
				w.cfg.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
				g := makeGallery(w)
				fail(g)
				w.start()
				if took := time.Since(w.began); took > time.Second {
					t.Errorf("the node was ready after %s", took)
				}
				beats := func(reports int) {
					t.Helper()
					asked := g.calls()
					for end := time.Now().Add(time.Duration(reports) * report); time.Now().Before(end); {
						time.Sleep(beat)
						l, err := w.c.Leases.Get(w.t.Context(), &metav1.GetRequest{Namespace: "kube-node-lease", Name: nodeName})
						if err != nil {
							t.Fatal(err)
						}
						if age := time.Since(time.Unix(l.GetSpec().GetRenewTime().GetSeconds(), 0)); age > beat {
							t.Errorf("the lease is %s old", age)
						}
					}
					for _, c := range w.node().GetStatus().GetConditions() {
						if age := time.Since(time.Unix(c.GetLastHeartbeatTime().GetSeconds(), 0)); age > report {
							t.Errorf("%s is %s old", c.GetType(), age)
						}
					}
					if n := g.calls() - asked; n < reports {
						t.Errorf("the images were asked for %d times, want %d", n, reports)
					}
				}
				warned := func(want int) {
					t.Helper()
					if got := strings.Count(logged.String(), "does not list its images"); got != want {
						t.Errorf("the log says %d times that images are not listed, want %d:\n%s", got, want, logged.String())
					}
				}
				beats(3)
				w.sees()
				warned(1)

				g.set([]*runtimeapi.Image{image(1, []string{"a:1"})}, nil, false)
				beats(1)
				w.sees("1: a:1")
				fail(g)
				beats(3)
				w.sees("1: a:1")
				warned(2)
				w.kill()
				w.start() // a new agent has listed nothing yet
				beats(1)
				w.sees("1: a:1")

				g.set(nil, nil, false)
				beats(1)
				w.sees()
				if held := g.longest(); held > 3*time.Second {
					t.Errorf("the images were waited for for %s", held)
				}
			})
		})
	}
}

// A node that was registered again has its images again, and so has one to which somebody else wrote at the same
// time. spec: NODE-1, NODE-7
func TestImagesAreReportedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		makeGallery(w, image(1, []string{"a:1"}))
		w.start()
		time.Sleep(beat)
		w.sees("1: a:1")
		w.deleteNode()
		time.Sleep(beat)
		w.sees("1: a:1")
		w.kill()

		w.deleteNode()
		lost := 0
		w.api.React(func(_ context.Context, method string, req any) error {
			up, ok := req.(*corev1rpc.UpdateNodeRequest)
			if ok && method == corev1rpc.Nodes_UpdateStatus_FullMethodName && len(up.GetObject().GetStatus().GetImages()) > 0 &&
				lost < 1 {
				lost++
				return apierrors.New(apierrors.Conflict, "somebody else wrote")
			}
			return nil
		})
		w.start()
		time.Sleep(10*time.Second - time.Millisecond) // one beat, whatever the node's offset
		w.sees()
		time.Sleep(beat)
		w.sees("1: a:1")
	})
}
