package lifecycle

import (
	"strings"
	"testing"
)

// A container that was started again is one that ran twice, unless it had ended, was told to, or the runtime has ended
// it as one whose start failed.
func TestTwice(t *testing.T) {
	for _, c := range []struct {
		marks  string
		failed int
		want   bool
	}{
		{marks: "START"},
		{marks: "START TERM START END(0)"},
		{marks: "START END(1) START"},
		{marks: "START START", want: true},
		{marks: "START START", failed: 1},
		{marks: "START START START", failed: 1, want: true},
		{marks: "START TERM START START END(0)", want: true},
	} {
		if got := twice(strings.Fields(c.marks), c.failed); got != c.want {
			t.Errorf("%s, %d failed: %t, want %t", c.marks, c.failed, got, c.want)
		}
	}
}
