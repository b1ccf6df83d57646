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
	leastPercent = 25
	// quietPercent is the same for a heap in which little happens, so that collecting it is not often needed.
	quietPercent = 15

	// busy is how many bytes are allocated between two looks when there is work to do.
	busy = 800 << 10
	// quietLooks is after how many looks without work memory is given back, and pauseLooks when it may be again.
	quietLooks, pauseLooks = 100, 600
	// worthwhile is how many bytes there must be to give back.
	worthwhile = 16 << 20
)

// tuneGC keeps the garbage in proportion until ctx ends: collecting often costs little where the heap is small, and
// where it is large every byte of garbage is a byte that the user's own programs do not have. When a burst of work is
// over it gives back what the burst took. GOGC overrules all of it.
func tuneGC(ctx context.Context) {
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
		percent, free := t.look(t.samples[0].Value.Uint64(), t.samples[1].Value.Uint64(),
			t.samples[2].Value.Uint64()+t.samples[3].Value.Uint64())
		if percent != t.percent {
			t.percent = percent
			debug.SetGCPercent(percent)
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
	allocated uint64 // at the last look
	idle      bool   // nothing much has happened since
	quiet     int    // looks without work; negative while memory was given back lately
}

// look decides on the percentage, and whether to give memory back, from the bytes that live, those ever allocated, and
// those held: alive, garbage or free.
func (t *tuner) look(live, allocated, held uint64) (percent int, free bool) {
	t.idle = allocated-t.allocated <= busy
	if !t.idle {
		t.quiet = min(t.quiet, 0)
	} else {
		t.quiet++
	}
	t.allocated = allocated
	if t.quiet >= quietLooks && held > live+worthwhile {
		t.quiet, free = -pauseLooks, true
	}
	if percent = gcPercent(live); t.idle && live > 2*headroom {
		percent = quietPercent
	}
	return percent, free
}

// gcPercent returns the garbage that may gather, in percent of live bytes, in steps of 5.
func gcPercent(live uint64) int {
	if live <= headroom {
		return 100
	}
	p := int(100 * headroom / live)
	return max(leastPercent, p-p%5)
}
