package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/images"
)

// pullProgress shows how far the layers of a pull, or a load, are: bars on a terminal, else a line for each step of a
// layer. Its methods may be called from several goroutines.
type pullProgress struct {
	out   io.Writer
	width int // of the terminal; 0 if it is none, or one that cannot move its cursor
	rows  int

	mu     sync.Mutex
	layers []images.Progress // in the order in which they began
	drawn  int               // how many lines of bars there are
	last   time.Time         // when they were drawn
}

// redraw is how often bars are drawn at most.
const redraw = 100 * time.Millisecond

func newPullProgress(out io.Writer) *pullProgress {
	p := &pullProgress{out: out}
	if f, ok := out.(*os.File); ok && isTerminal(f) && os.Getenv("TERM") != "dumb" {
		p.width, p.rows = terminalSize(f)
	}
	return p
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// terminalSize returns the columns and rows of a terminal; what is usual where it does not say.
func terminalSize(f *os.File) (width, rows int) {
	const usualWidth, usualRows = 80, 24
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return usualWidth, usualRows
	}
	return cmp.Or(int(size.Col), usualWidth), cmp.Or(int(size.Row), usualRows)
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

// again says what went wrong and is tried again, above the bars.
func (p *pullProgress) again(err error) { p.say("trying again: " + err.Error()) }

// say says something above the bars.
func (p *pullProgress) say(said string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.width == 0 {
		fmt.Fprintln(p.out, said)
		return
	}
	if runes := []rune(said); len(runes) >= p.width {
		said = string(runes[:max(0, p.width-1)])
	}
	if p.drawn > 0 {
		fmt.Fprintf(p.out, "\x1b[%dA\x1b[J", p.drawn)
	}
	fmt.Fprintf(p.out, "\r%s\x1b[K\n", said)
	p.drawn = 0
	p.draw()
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

// draw draws the bars over those that are there. There are never more than fit on the screen: else its uppermost lines
// would be out of reach, and be drawn anew below each time.
func (p *pullProgress) draw() {
	lines := p.lines()
	var b strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", p.drawn)
	}
	for _, l := range lines {
		fmt.Fprintf(&b, "\r%s\x1b[K\n", l)
	}
	if p.drawn > len(lines) { // What is below is of before.
		b.WriteString("\x1b[J")
	}
	p.drawn = len(lines)
	fmt.Fprint(p.out, b.String())
}

// lines is what is to be drawn: a line for each layer, or, where there are too many, for those that are not complete
// yet, as many as there is room for, and how many are complete.
func (p *pullProgress) lines() (lines []string) {
	const apart = 2 // For the count, and the cursor below.
	most := max(0, p.rows-apart)
	all, complete := len(p.layers) < p.rows, 0
	for _, l := range p.layers {
		if l.Phase == images.Complete {
			complete++
		}
		if all || l.Phase != images.Complete && len(lines) < most {
			lines = append(lines, line(l, p.width))
		}
	}
	if !all {
		count := fmt.Sprintf("%d of %d complete", complete, len(p.layers))
		lines = append(lines, count[:max(0, min(p.width-1, len(count)))])
	}
	return lines
}

// line is one layer's, no wider than the terminal.
func line(l images.Progress, width int) string {
	head := fmt.Sprintf("%s %-11s ", shortID(l.Digest), l.Phase)
	tail := fmt.Sprintf(" %9s / %s", size(l.Done), size(l.Total))
	if l.Phase == images.Reading && l.Total == 0 { // It comes through a pipe.
		tail = fmt.Sprintf(" %9s", size(l.Done))
	}
	const least = 10
	room := width - len(head) - len(tail) - 3
	if room < least {
		return (head + tail)[:max(0, min(width-1, len(head)+len(tail)))]
	}
	full := room
	if l.Phase == images.Reading && l.Total == 0 {
		full = 0
	}
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
