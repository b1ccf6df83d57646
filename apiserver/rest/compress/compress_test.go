package compress_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"monoplane.dev/apiserver/rest/compress"
)

func TestWhoGetsGzip(t *testing.T) {
	for _, c := range []struct {
		accept, peer   string
		accepted, pays bool
	}{
		{"", "192.0.2.1:5", false, false},
		{"gzip", "192.0.2.1:5", true, true},
		{"deflate, gzip;q=0.5", "[2001:db8::1]:5", true, true},
		{"gzip;q=1.0, identity; q=0.5", "192.0.2.1:5", true, true},
		{"gzip;q=0", "192.0.2.1:5", false, false},
		{"gzip; q=0.0", "192.0.2.1:5", false, false},
		{"br, identity", "192.0.2.1:5", false, false},
		{"x-gzip", "192.0.2.1:5", false, false},
		{"gzip", "127.0.0.1:5", true, false},
		{"gzip", "[::1]:5", true, false},
		{"gzip", "[::ffff:127.0.0.1]:5", true, false},
		{"gzip", "local", true, false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.peer
		if c.accept != "" {
			r.Header.Set("Accept-Encoding", c.accept)
		}
		if accepted, pays := compress.Accepted(r), compress.Pays(r); accepted != c.accepted || pays != c.pays {
			t.Errorf("%q from %s: accepted %v, pays %v", c.accept, c.peer, accepted, pays)
		}
	}
}

// A writer that was used before has nothing left of that.
func TestWritersAreUsedAgain(t *testing.T) {
	var pool compress.Pool
	for _, text := range []string{strings.Repeat("a long text ", 50_000), "", "short"} {
		var b bytes.Buffer
		w, err := pool.Writer(&b)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitAfterSeq(text, " ") {
			if _, err := io.WriteString(w, part); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(&b)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(z); err != nil || string(got) != text {
			t.Errorf("%v: %d bytes of %d", err, len(got), len(text))
		}
	}
}
