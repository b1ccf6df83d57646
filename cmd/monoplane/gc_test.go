package main

import "testing"

func TestGCPercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 100}, {headroom, 100}, {40 << 20, 80}, {64 << 20, 50}, {100 << 20, 30}, {1 << 40, 25}} {
		if got := gcPercent(c.live); got != c.want {
			t.Errorf("with %d MB alive: %d %%, want %d %%", c.live>>20, got, c.want)
		}
	}
}

// Memory is given back once a burst is over, not during one, not when there is little, and not all the time.
func TestGiveBack(t *testing.T) {
	const live = 100 << 20
	tu := tuner{}
	allocated, given := uint64(0), []int{}
	look := func(i int, work, held uint64) {
		allocated += work
		if _, free := tu.look(live, allocated, held); free {
			given = append(given, i)
		}
	}
	for i := range 30 {
		look(i, busy+1, 2*live) // a burst
	}
	for i := 30; i < 30+quietLooks+pauseLooks+quietLooks; i++ {
		look(i, 1000, 2*live) // quiet
	}
	for i := 200; i < 400; i++ {
		look(i, 1000, live+worthwhile) // nothing to give
	}
	want := []int{30 + quietLooks - 1, 30 + quietLooks + pauseLooks + quietLooks - 1}
	if len(given) != 2 || given[0] != want[0] || given[1] != want[1] {
		t.Errorf("given back at %v, want %v", given, want)
	}
}
