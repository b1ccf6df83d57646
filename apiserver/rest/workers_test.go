package rest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// However many requests there were at once, few workers wait for more, and none once the front is closed.
func TestWorkersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		p := newWorkers(ctx, func(w http.ResponseWriter, r *http.Request) {
			<-release
			w.WriteHeader(http.StatusTeapot)
		})
		var wg sync.WaitGroup
		for range 3 * maxIdle {
			wg.Go(func() {
				w := httptest.NewRecorder()
				p.run(w, httptest.NewRequest(http.MethodGet, "/", nil))
				if w.Code != http.StatusTeapot {
					t.Errorf("answered %d", w.Code)
				}
			})
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		synctest.Wait()
		if n := alive(); n != maxIdle {
			t.Errorf("%d workers wait, want %d", n, maxIdle)
		}
		p.run(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		synctest.Wait()
		if n := alive(); n != maxIdle {
			t.Errorf("%d workers wait after another request, want %d", n, maxIdle)
		}
		cancel()
		synctest.Wait()
		if n := alive(); n != 0 {
			t.Errorf("%d workers are left", n)
		}
		p.run(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)) // served nevertheless
		synctest.Wait()
	})
}

// alive counts the workers by their stacks: the runtime counts a goroutine that has ended for a moment more.
func alive() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Count(string(stacks), "rest.(*workers).work(")
}

// What the code panics with reaches the goroutine of the request, where net/http breaks the connection off.
func TestWorkersPassPanicsOn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := newWorkers(ctx, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for range 2 {
		func() {
			defer func() {
				if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
					t.Errorf("panicked with %v", err)
				}
			}()
			p.run(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}()
	}
}
