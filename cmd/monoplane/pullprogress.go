package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/images"
)

// pullProgress shows how far the layers of a pull are: bars on a terminal, else a line for each step of a layer. Its
// methods may be called from several goroutines.
type pullProgress struct {
	out   io.Writer
	width int // of the terminal; 0 if it is none

	mu     sync.Mutex
	layers []images.Progress // in the order in which they began
	drawn  int               // how many lines of bars there are
	last   time.Time         // when they were drawn
}

// redraw is how often bars are drawn at most.
const redraw = 100 * time.Millisecond

func newPullProgress(out io.Writer) *pullProgress {
	p := &pullProgress{out: out}
	if f, ok := out.(*os.File); ok && isTerminal(f) {
		p.width = terminalWidth(f)
	}
	return p
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

func terminalWidth(f *os.File) int {
	const usual = 80
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return usual
	}
	return int(size.Col)
}

// update takes in how far a layer is.
func (p *pullProgress) update(at images.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := p.note(at)
	if p.width == 0 {
		if changed {
			fmt.Fprintf(p.out, "%s %s %s\n", shortID(at.Digest), at.Phase, size(at.Total))
		}
		return
	}
	if now := time.Now(); changed || now.Sub(p.last) >= redraw {
		p.last = now
		p.draw()
	}
}

// note returns whether a layer has come to another phase.
func (p *pullProgress) note(at images.Progress) bool {
	for i, l := range p.layers {
		if l.Digest == at.Digest {
			p.layers[i] = at
			return l.Phase != at.Phase
		}
	}
	p.layers = append(p.layers, at)
	return true
}

// end draws the bars for the last time.
func (p *pullProgress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.width > 0 {
		p.draw()
	}
}

// draw draws all bars, over those that are there.
func (p *pullProgress) draw() {
	var b strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", p.drawn)
	}
	for _, l := range p.layers {
		fmt.Fprintf(&b, "\r%s\x1b[K\n", line(l, p.width))
	}
	p.drawn = len(p.layers)
	fmt.Fprint(p.out, b.String())
}

// line is one layer's, no wider than the terminal.
func line(l images.Progress, width int) string {
	head := fmt.Sprintf("%s %-11s ", shortID(l.Digest), l.Phase)
	tail := fmt.Sprintf(" %9s / %s", size(l.Done), size(l.Total))
	const least = 10
	room := width - len(head) - len(tail) - 3
	if room < least {
		return (head + tail)[:max(0, min(width-1, len(head)+len(tail)))]
	}
	full := room
	if l.Total > 0 {
		full = int(int64(room) * min(l.Done, l.Total) / l.Total)
	}
	return head + "[" + strings.Repeat("=", full) + strings.Repeat(" ", room-full) + "]" + tail
}

// size writes a number of bytes for a person.
func size(n int64) string {
	const unit = 1000
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, prefixes := float64(n)/unit, "kMGTPE"
	for value >= unit && len(prefixes) > 1 {
		value, prefixes = value/unit, prefixes[1:]
	}
	return fmt.Sprintf("%.1f %cB", value, prefixes[0])
}
