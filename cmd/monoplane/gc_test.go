package main

import (
	"context"
	"runtime"
	"slices"
	"testing"
)

func TestGCPercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 100}, {headroom, 100}, {40 << 20, 80}, {64 << 20, 50}, {80 << 20, 40}, {100 << 20, 30}, {1 << 40, 30}} {
		if got := gcPercent(c.live); got != c.want {
			t.Errorf("with %d MB alive: %d %%, want %d %%", c.live>>20, got, c.want)
		}
	}
}

// Memory is given back once a burst is over, not during one, not when there is little, and not all the time.
func TestGiveBack(t *testing.T) {
	const live = 100 << 20
	tu := tuner{}
	allocated, over, given := uint64(0), []int{}, []int{}
	at := 0
	look := func(work, held uint64) {
		allocated += work
		o, free := tu.look(live, allocated, held)
		if o {
			over = append(over, at)
		}
		if free {
			given = append(given, at)
		}
		at++
	}
	for range 3 {
		look(2*busy, 2*live) // a burst
	}
	for at < 3+quietWindows+pauseWindows+quietWindows {
		look(busy/2, 2*live) // quiet
	}
	for at < 3+2*(quietWindows+pauseWindows)+quietWindows {
		look(busy/2, live+worthwhile) // nothing to give
	}
	first := 3 + quietWindows - 1
	second := first + pauseWindows + quietWindows
	third := second + pauseWindows + quietWindows
	if want := []int{first, second}; !slices.Equal(given, want) {
		t.Errorf("memory was given back after windows %v, want %v", given, want)
	}
	if want := []int{first, second, third}; !slices.Equal(over, want) {
		t.Errorf("it was quiet after windows %v, want %v", over, want)
	}
}

// Every collection is told, not only the first, and none after the end.
func TestAfterCollection(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	collected := make(chan struct{}, 1)
	afterCollection(ctx, collected)
	for range 3 {
		runtime.GC()
		<-collected
	}
	cancel()
}

// A large heap gathers less garbage while little happens.
func TestQuietPercent(t *testing.T) {
	const live = 100 << 20
	tu := tuner{}
	if got := tu.choose(live); got != leastPercent {
		t.Errorf("at first: %d %%", got)
	}
	tu.look(live, busy, live)
	if got := tu.choose(live); got != quietPercent {
		t.Errorf("when it is quiet: %d %%", got)
	}
	if got := tu.choose(headroom); got != 100 {
		t.Errorf("when it is quiet and small: %d %%", got)
	}
	tu.look(live, 3*busy, live)
	if got := tu.choose(live); got != leastPercent {
		t.Errorf("when there is work: %d %%", got)
	}
}
