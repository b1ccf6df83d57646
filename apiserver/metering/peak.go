package metering

import (
	"sync"
	"time"
)

// peak is the most requests at once in each second.
type peak struct {
	mu sync.Mutex
	// now is how many there are, high the most in the second, before the most in the one before.
	now, high, before int
	second            int64
}

// add notes that there are n more.
func (p *peak) add(n int, at time.Time) {
	p.mu.Lock()
	p.turn(at.Unix())
	p.now += n
	p.high = max(p.high, p.now)
	p.mu.Unlock()
}

// last returns the most in the last second that is over.
func (p *peak) last(at time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(at.Unix())
	return p.before
}

// turn begins a new second, if it has begun.
func (p *peak) turn(second int64) {
	switch {
	case second <= p.second: // Two that call at once may come in either order.
		return
	case second == p.second+1:
		p.before = p.high
	default:
		p.before = p.now
	}
	p.second, p.high = second, p.now
}
