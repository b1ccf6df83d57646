package grace_test

import (
	"math"
	"testing"
	"time"

	"monoplane.dev/rules/grace"
)

// spec: DEL-1, DEL-14
func TestPeriods(t *testing.T) {
	const century = 100 * 365 * 24 * 60 * 60
	for _, c := range []struct{ seconds, asked, own int64 }{
		{30, 30, 30}, {1, 1, 1}, {0, 0, 1}, {-1, 1, 1}, {math.MinInt64, 1, 1}, {math.MaxInt64, century, century},
	} {
		if got := grace.Asked(c.seconds); got != c.asked {
			t.Errorf("asked for %d: %d, want %d", c.seconds, got, c.asked)
		}
		if got := grace.Own(&c.seconds); got != c.own {
			t.Errorf("%d in the spec: %d, want %d", c.seconds, got, c.own)
		}
		if d := grace.Duration(grace.Own(&c.seconds)); d < time.Second || d/time.Second != time.Duration(c.own) {
			t.Errorf("%d in the spec lasts %v", c.seconds, d)
		}
	}
	if got := grace.Own(nil); got != 30 {
		t.Errorf("nothing in the spec: %d", got)
	}
}
