package rest_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"monoplane.dev/apiserver/rest/compress"
)

// Long answers are compressed for other machines that take gzip, and are the same as without; short ones, watches and
// those for this machine are not.
func TestLongAnswersAreCompressed(t *testing.T) {
	f := newFront(t)
	const maps = "/api/v1/namespaces/default/configmaps"
	for i := range 3 * compress.Threshold / (32 << 10) {
		f.want(f.do("POST", maps, fmt.Sprintf(`{"metadata":{"name":"c%d"},"data":{"k":"%s"}}`, i,
			strings.Repeat("words of little news ", 32<<10/20))), 201)
	}
	get := func(path, peer string, headers ...string) *httptest.ResponseRecorder {
		// A watch is over when its context is, which this one is as soon as it has begun.
		ctx := t.Context()
		if strings.Contains(path, "watch") {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			w := &ending{httptest.NewRecorder(), cancel}
			r := request(ctx, path, peer, headers...)
			f.h.ServeHTTP(w, r)
			return w.ResponseRecorder
		}
		w := httptest.NewRecorder()
		f.h.ServeHTTP(w, request(ctx, path, peer, headers...))
		return w
	}
	const far = "192.0.2.1:4711"
	for _, form := range []string{
		"application/json", "application/yaml", "application/vnd.kubernetes.protobuf",
	} {
		plain := get(maps, far, "Accept", form)
		packed := get(maps, far, "Accept", form, "Accept-Encoding", "gzip")
		if plain.Result().Header.Get("Content-Encoding") != "" || packed.Result().Header.Get("Content-Encoding") != "gzip" ||
			packed.Result().Header.Get("Vary") != "Accept-Encoding" || packed.Result().Header.Get("Content-Length") != "" ||
			packed.Result().Header.Get("Content-Type") != form {
			t.Errorf("%s: headers %v and %v", form, plain.Result().Header, packed.Result().Header)
		}
		size := packed.Body.Len()
		z, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(z); err != nil || string(b) != plain.Body.String() || size > len(b)/10 {
			t.Errorf("%s: %v, %d bytes, of %d packed, where %d were expected", form, err, len(b), size, plain.Body.Len())
		}
	}
	for what, w := range map[string]*httptest.ResponseRecorder{
		"for this machine": get(maps, "127.0.0.1:4711", "Accept-Encoding", "gzip"),
		"one object":       get(maps+"/c0", far, "Accept-Encoding", "gzip"),
		"a watch":          get(maps+"?watch=true&resourceVersion=0", far, "Accept-Encoding", "gzip"),
		"not wanted":       get(maps, far, "Accept-Encoding", "gzip;q=0"),
	} {
		if w.Code != http.StatusOK || w.Result().Header.Get("Content-Encoding") != "" || w.Body.Len() < 32<<10 ||
			!strings.HasPrefix(w.Body.String(), "{") {
			t.Errorf("%s: %d, %v, %d bytes", what, w.Code, w.Result().Header, w.Body.Len())
		}
	}
}

func request(ctx context.Context, path, peer string, headers ...string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.RemoteAddr = peer
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// ending ends a stream when something of it has been written.
type ending struct {
	*httptest.ResponseRecorder
	end func()
}

func (w *ending) Write(b []byte) (int, error) {
	defer w.end()
	return w.ResponseRecorder.Write(b)
}
