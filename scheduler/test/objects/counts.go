package objects

import "testing"

// Counts counts what random cases were about, so that a test can see that it tests something.
type Counts map[string]int

// Floors fails the test when there were too few cases of a sort.
func (c Counts) Floors(t *testing.T, least map[string]int) {
	t.Helper()
	t.Logf("%v", c)
	for what, n := range least {
		if c[what] < n {
			t.Errorf("%s: %d cases, want %d", what, c[what], n)
		}
	}
}
