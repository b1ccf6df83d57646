package quota_test

import (
	"errors"
	"math"
	"testing"

	"monoplane.dev/nodeagent/quota"
)

// A file system without quotas says so.
func TestUnsupported(t *testing.T) {
	if p, err := quota.New("/proc"); p != 0 || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%d, %v", p, err)
	}
}

func TestHard(t *testing.T) {
	const mib = 1 << 20
	for bytes, want := range map[int64]int64{
		1: 16*mib + 1, 100 * mib: 116 * mib, 1000 * mib: 1100 * mib, math.MaxInt64: 1<<62 + (1<<62)/10,
	} {
		if got := quota.Hard(bytes); got != want {
			t.Errorf("of %d: %d, want %d", bytes, got, want)
		}
	}
}
