package portion_test

import (
	"testing"

	"monoplane.dev/rules/portion"

	metav1 "monoplane.dev/api/meta/v1"
)

// spec: DISR-1
func TestPortions(t *testing.T) {
	number := func(n int32) *metav1.IntOrString { return &metav1.IntOrString{IntVal: n} }
	text := func(s string) *metav1.IntOrString { return &metav1.IntOrString{Type: 1, StrVal: s} }
	for _, c := range []struct {
		value    *metav1.IntOrString
		total    int
		up, down int
	}{
		{number(3), 10, 3, 3}, {number(0), 10, 0, 0}, {number(12), 10, 12, 12},
		{text("0%"), 7, 0, 0}, {text("50%"), 7, 4, 3}, {text("100%"), 7, 7, 7}, {text("1%"), 1, 1, 0},
		{text("34%"), 3, 2, 1}, {text("33%"), 3, 1, 0}, {text("25%"), 0, 0, 0}, {text("250%"), 4, 10, 10},
	} {
		up, err := portion.Up(c.value, c.total)
		if err != nil || up != c.up {
			t.Errorf("%v of %d rounded up: got %d (%v), want %d", c.value, c.total, up, err, c.up)
		}
		down, err := portion.Down(c.value, c.total)
		if err != nil || down != c.down {
			t.Errorf("%v of %d rounded down: got %d (%v), want %d", c.value, c.total, down, err, c.down)
		}
	}
	for _, s := range []string{"", "5", "%", "-5%", "x%", "5%%"} {
		if n, err := portion.Up(text(s), 10); err == nil {
			t.Errorf("%q counts as %d, want an error", s, n)
		}
	}
}
