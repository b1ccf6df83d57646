package warning_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"monoplane.dev/apiserver/warning"
)

func TestCollectorKeepsDistinctTextsInOrder(t *testing.T) {
	ctx, c := warning.WithCollector(t.Context())
	for _, s := range []string{"b", "a", "b", " a ", "", "\n", "two\r\nlines", "two  lines"} {
		warning.Add(ctx, s)
	}
	if got, want := fmt.Sprintf("%q", c.Texts()), `["b" "a" "two  lines"]`; got != want {
		t.Errorf("texts %s, want %s", got, want)
	}
	warning.Add(context.Background(), "nobody listens")
}

func TestTextsFitHeaders(t *testing.T) {
	for _, s := range []string{
		"plain", "with \"quotes\" and \\", "\x00\x7f\u0085", "a\r\nSet-Cookie: x", "\xff\xfe", strings.Repeat("ä", 5000),
		"日本語",
	} {
		ctx, c := warning.WithCollector(t.Context())
		warning.Add(ctx, s)
		for _, text := range c.Texts() {
			if len(text) > warning.MaxBytes || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%.20q became %.40q (%d bytes)", s, text, len(text))
			}
			h := warning.Header(text)
			if !strings.HasPrefix(h, `299 - "`) || !strings.HasSuffix(h, `"`) {
				t.Errorf("header %q", h)
			}
			inner := strings.NewReplacer(`\\`, "", `\"`, "").Replace(h[len(`299 - "`) : len(h)-1])
			if strings.ContainsAny(inner, `"\`) {
				t.Errorf("header %q has quotes that are not escaped", h)
			}
			header := http.Header{}
			header.Add("Warning", h)
			var b strings.Builder
			if err := header.Write(&b); err != nil || strings.Count(b.String(), "\n") != 1 {
				t.Errorf("header is written as %q, error %v", b.String(), err)
			}
		}
	}
}

func TestCollectorIsBounded(t *testing.T) {
	ctx, c := warning.WithCollector(t.Context())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 100 {
				warning.Add(ctx, fmt.Sprint(i, j))
			}
		})
	}
	wg.Wait()
	if n := len(c.Texts()); n != warning.MaxTexts {
		t.Errorf("%d texts, want %d", n, warning.MaxTexts)
	}
}
