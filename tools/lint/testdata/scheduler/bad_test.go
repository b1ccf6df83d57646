package scheduler_test

import "testing"

func TestNothing(t *testing.T) {
	t.Logf("%d", "a string") // find govet
}
