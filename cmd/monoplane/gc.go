package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// window is the time between two looks at whether there is work to do, which there is when more than busy bytes
	// were allocated: the runtime counts what is allocated in leaps.
	window, busy = time.Second, 8 << 20
	// headroom is how much garbage a small heap may gather between two collections: as much as it has.
	headroom = 32 << 20
	// leastPercent is how much garbage a large heap may gather, in percent of what lives.
	leastPercent = 30
	// quietPercent is the same for a heap in which little happens, so that collecting it is not often needed.
	quietPercent = 15

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
	tick := time.NewTicker(window)
	defer tick.Stop()
	collected := make(chan struct{}, 1)
	afterCollection(ctx, collected)
	t := tuner{percent: 100, samples: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
	}}
	for {
		var over, free bool
		select {
		case <-collected:
			metrics.Read(t.samples[:1])
		case <-tick.C:
			metrics.Read(t.samples)
			over, free = t.look(t.samples[0].Value.Uint64(), t.samples[1].Value.Uint64(),
				t.samples[2].Value.Uint64()+t.samples[3].Value.Uint64())
		case <-ctx.Done():
			return
		}
		if percent := t.choose(t.samples[0].Value.Uint64()); percent != t.percent {
			t.percent = percent
			debug.SetGCPercent(percent)
		}
		if over {
			rest(ctx)
		}
		if free {
			debug.FreeOSMemory()
		}
	}
}

// afterCollection tells c after every collection, until ctx ends: only then is it known anew how much lives.
func afterCollection(ctx context.Context, c chan<- struct{}) {
	sentinel := new(*byte) // with a pointer, so that it does not share its memory with other small objects
	runtime.AddCleanup(sentinel, func(struct{}) {
		if ctx.Err() != nil {
			return
		}
		select {
		case c <- struct{}{}:
		default: // it has not looked since the last one
		}
		afterCollection(ctx, c)
	}, struct{}{})
}

type tuner struct {
	samples   []metrics.Sample
	percent   int
	allocated uint64 // at the beginning of this window
	idle      bool   // nothing much happened in the last one
	quiet     int    // windows without work; negative while memory was given back lately
}

// look ends a window and decides whether a burst of work is over, and whether there is memory worth giving back then,
// from the bytes that live, those ever allocated, and those held: alive, garbage or free.
func (t *tuner) look(live, allocated, held uint64) (over, free bool) {
	t.idle, t.allocated = allocated-t.allocated <= busy, allocated
	if !t.idle {
		t.quiet = min(t.quiet, 0)
	} else {
		t.quiet++
	}
	if t.quiet >= quietWindows {
		t.quiet, over = -pauseWindows, true
		free = held > live+worthwhile
	}
	return over, free
}

// choose returns the garbage that may gather, in percent of live bytes.
func (t *tuner) choose(live uint64) int {
	if t.idle && live > 2*headroom {
		return quietPercent
	}
	return gcPercent(live)
}

// gcPercent returns the garbage that may gather, in percent of live bytes, in steps of 5.
func gcPercent(live uint64) int {
	if live <= headroom {
		return 100
	}
	p := int(100 * headroom / live)
	return max(leastPercent, p-p%5)
}
