package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// gcEvery is the time between two looks at the heap: a start fills it quickly.
	gcEvery = 100 * time.Millisecond
	// headroom is how much garbage a small heap may gather between two collections: as much as it has.
	headroom = 32 << 20
	// leastPercent is how much garbage a large heap may gather, in percent of what lives.
	leastPercent = 30
	// quietPercent is the same for a heap in which little happens, so that collecting it is not often needed.
	quietPercent = 15

	// window is how many looks are taken together to tell whether there is work to do: the runtime counts what is
	// allocated in leaps. Then more than busy bytes are allocated in a window.
	window, busy = 10, 8 << 20
	// quietWindows is after how many windows without work memory is given back, and pauseWindows when it may be again.
	quietWindows, pauseWindows = 10, 60
	// worthwhile is how many bytes there must be to give back.
	worthwhile = 16 << 20
)

// tuneGC keeps the garbage in proportion until ctx ends: collecting often costs little where the heap is small, and
// where it is large every byte of garbage is a byte that the user's own programs do not have. When a burst of work is
// over it gives back what the burst took, and calls rest, which may give back more. GOGC overrules all of it.
func tuneGC(ctx context.Context, rest func(context.Context)) {
	if os.Getenv("GOGC") != "" {
		return
	}
	tick := time.NewTicker(gcEvery)
	defer tick.Stop()
	t := tuner{percent: 100, samples: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
	}}
	for {
		metrics.Read(t.samples)
		percent, over, free := t.look(t.samples[0].Value.Uint64(), t.samples[1].Value.Uint64(),
			t.samples[2].Value.Uint64()+t.samples[3].Value.Uint64())
		if percent != t.percent {
			t.percent = percent
			debug.SetGCPercent(percent)
		}
		if over {
			rest(ctx)
		}
		if free {
			debug.FreeOSMemory()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

type tuner struct {
	samples   []metrics.Sample
	percent   int
	looks     int    // in this window
	allocated uint64 // at its beginning
	idle      bool   // nothing much happened in the last one
	quiet     int    // windows without work; negative while memory was given back lately
}

// look decides on the percentage, whether a burst of work is over, and whether there is memory worth giving back then,
// from the bytes that live, those ever allocated, and those held: alive, garbage or free.
func (t *tuner) look(live, allocated, held uint64) (percent int, over, free bool) {
	if t.looks++; t.looks == window {
		t.looks, t.idle, t.allocated = 0, allocated-t.allocated <= busy, allocated
		if !t.idle {
			t.quiet = min(t.quiet, 0)
		} else {
			t.quiet++
		}
		if t.quiet >= quietWindows {
			t.quiet, over = -pauseWindows, true
			free = held > live+worthwhile
		}
	}
	if percent = gcPercent(live); t.idle && live > 2*headroom {
		percent = quietPercent
	}
	return percent, over, free
}

// gcPercent returns the garbage that may gather, in percent of live bytes, in steps of 5.
func gcPercent(live uint64) int {
	if live <= headroom {
		return 100
	}
	p := int(100 * headroom / live)
	return max(leastPercent, p-p%5)
}
