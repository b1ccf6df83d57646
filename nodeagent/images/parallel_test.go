package images_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"monoplane.dev/nodeagent/images"
)

// gate is a registry that answers for layers only once enough of them are asked for at the same time.
type gate struct {
	http.Handler

	mu        sync.Mutex
	layers    map[string]bool // the digests; empty until the images are there
	hangs     string          // this one is answered only after released
	now, most int             // how many are asked for; the most at a time
	waited    bool            // enough will be closed
	enough    chan struct{}   // closed after as many are asked for as come at a time
	released  chan struct{}
}

const (
	atATime = 3
	// fourth is how long one more than these has to come, which it does not.
	fourth = 100 * time.Millisecond
)

func (g *gate) begin(path string) (layer, hangs bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	digest := path[strings.LastIndexByte(path, '/')+1:]
	if !g.layers[digest] {
		return false, false
	}
	g.now++
	if g.most = max(g.most, g.now); g.most == atATime && !g.waited {
		g.waited = true
		time.AfterFunc(fourth, func() { close(g.enough) })
	}
	return true, digest == g.hangs
}

func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now--
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if layer, hangs := g.begin(r.URL.Path); layer {
		defer g.end()
		for wait, until := range map[bool]chan struct{}{true: g.enough, hangs: g.released} {
			if !wait {
				continue
			}
			select {
			case <-until:
			case <-r.Context().Done(): // the puller has lost patience
				return
			}
		}
	}
	g.Handler.ServeHTTP(w, r)
}

// Three layers of an image are asked for at the same time, and never more; while one of them does not come the others
// do.
func TestLayersComeInParallel(t *testing.T) {
	g := &gate{enough: make(chan struct{}), released: make(chan struct{})}
	host := serve(t, func(next http.Handler) http.Handler {
		g.Handler = next
		return g
	})
	const layers = 8
	var all []v1.Layer
	for i := range layers {
		all = append(all, layer(t, compression.GZip, file(fmt.Sprint("f", i), big(10_000+i))))
	}
	push(t, host+"/app:v1", imageOf(t, all...))
	g.mu.Lock()
	g.layers, g.hangs = make(map[string]bool), digestOf(t, all[0]).String()
	for _, l := range all {
		g.layers[digestOf(t, l).String()] = true
	}
	g.mu.Unlock()

	s := open(t, func(cfg *images.Config) { cfg.Registries.Stall = time.Minute })
	var complete []string
	_, err := s.Pull(t.Context(), host+"/app:v1", images.PullOptions{Progress: func(at images.Progress) {
		if at.Phase != images.Complete {
			return
		}
		if complete = append(complete, at.Digest); len(complete) == layers-1 {
			close(g.released)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if len(complete) != layers || complete[layers-1] != g.hangs {
		t.Errorf("the layers came as %v; want %s at last", complete, g.hangs)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.most != atATime {
		t.Errorf("%d layers were asked for at a time, not %d", g.most, atATime)
	}
}
