package crash

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// leaps are ways in which a machine's clock goes wrong, or right: a first look at a time server, a summer that is done
// by hand, a copy of a machine that was asleep, a battery that has run out.
var leaps = []time.Duration{
	-time.Second, time.Minute, -10 * time.Minute, time.Hour, -2 * time.Hour, 36 * time.Hour, -30 * 24 * time.Hour,
}

// needClock says why the clock may not be set: all of the machine has it.
func needClock() error {
	if os.Getenv("MONOPLANE_CRASH_CLOCK") != "yes" {
		return errors.New("MONOPLANE_CRASH_CLOCK does not say that the machine's clock may be set")
	}
	return nil
}

// clockwork sets the machine's clock, and knows by how much it is wrong.
type clockwork struct {
	mu    sync.Mutex
	wrong time.Duration
}

// leap sets the clock wrong, and right later, but for a leap that is for ever.
func (c *clockwork) leap(by, length time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.setLocked(by); err != nil || length == forever {
		return err
	}
	time.AfterFunc(length, c.heal)
	return nil
}

// heal sets the clock right.
func (c *clockwork) heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong != 0 {
		_ = c.setLocked(-c.wrong) // It could be set wrong.
	}
}

func (c *clockwork) setLocked(by time.Duration) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		return err
	}
	then := unix.NsecToTimespec(now.Nano() + by.Nanoseconds())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &then); err != nil {
		return err
	}
	c.wrong += by
	return nil
}
