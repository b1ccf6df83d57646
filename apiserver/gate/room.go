package gate

import (
	"net"
	"net/netip"
	"time"
)

// admit waits until there is room for a connection, and counts it. It is false when the connection has to go: the
// listener is closed, or the connection's own address has too many.
func (l *Listener) admit(c *Conn) bool {
	for {
		l.mu.Lock()
		state, victim, wait := l.room(c)
		switch state {
		case free:
			l.add(c)
		case crowded:
			if victim != nil {
				l.remove(victim)
			}
		}
		l.mu.Unlock()
		switch {
		case state == free:
			return true
		case state == full:
			return false
		case victim != nil:
			_ = victim.Close()
			continue
		}
		var timeout <-chan time.Time
		if wait > 0 {
			timeout = time.After(wait)
		}
		select {
		case <-l.changed:
		case <-timeout:
		case <-l.ctx.Done():
			return false
		}
	}
}

// room is how it stands with the room for a connection.
type room int

const (
	free room = iota
	// crowded is when another has to go first.
	crowded
	// full is when the connection's own address has too many.
	full
)

// room says whether there is room for c. When it is crowded it returns the connection that can make room, or, if there
// is none, how long to wait for one (0: until something changes).
func (l *Listener) room(c *Conn) (room, *Conn, time.Duration) {
	limits := l.cfg.Limits
	if c.address.IsValid() {
		n := l.addresses[c.address]
		if n.all >= limits.MaxPerAddress || n.unauthenticated >= limits.MaxUnauthenticatedPerAddress {
			// It may only push out its own. To let it wait would make the others wait, who come after it.
			victim, _ := l.oldest(func(o *Conn) bool { return o.address == c.address })
			if victim == nil {
				return full, nil, 0
			}
			return crowded, victim, 0
		}
	}
	if l.open < limits.MaxConnections && l.waiting.Len() < limits.MaxUnauthenticated {
		return free, nil, 0
	}
	victim, wait := l.oldest(func(*Conn) bool { return true })
	return crowded, victim, wait
}

// oldest returns the unauthenticated connection that is first to make room: the oldest on which nothing has come, or
// else the oldest, if they have had their time; otherwise how long that takes, 0 when there is none.
func (l *Listener) oldest(of func(*Conn) bool) (victim *Conn, wait time.Duration) {
	now := time.Now()
	sooner := func(left time.Duration) {
		if wait == 0 || left < wait {
			wait = left
		}
	}
	for e := l.waiting.Front(); e != nil; e = e.Next() {
		c := e.Value.(*Conn)
		if !of(c) {
			continue
		}
		age := now.Sub(c.since)
		if left := l.cfg.Limits.Silence - age; left > 0 {
			sooner(left)
			break // those after it are younger
		}
		if c.silent() {
			return c, 0
		}
		if left := l.cfg.Limits.Patience - age; left > 0 {
			sooner(left)
		} else if victim == nil {
			victim = c
		}
	}
	return victim, wait
}

// add counts an unauthenticated connection.
func (l *Listener) add(c *Conn) {
	l.open++
	c.place = l.waiting.PushBack(c)
	c.counted = true
	c.since = time.Now()
	c.expiry = time.AfterFunc(l.cfg.Limits.Lifetime, func() { _ = c.Close() })
	l.count(c.address, 1, 1)
}

// remove forgets a connection that is closed; it may be called again.
func (l *Listener) remove(c *Conn) {
	if !c.counted {
		return
	}
	c.counted = false
	l.open--
	if c.place == nil {
		l.count(c.address, -1, 0)
	} else {
		l.settle(c)
		l.count(c.address, -1, -1)
	}
	l.wake()
}

// settle takes a connection from the unauthenticated ones.
func (l *Listener) settle(c *Conn) {
	l.waiting.Remove(c.place)
	c.place = nil
	c.expiry.Stop()
}

func (l *Listener) count(a netip.Prefix, all, unauthenticated int) {
	if !a.IsValid() {
		return
	}
	n := l.addresses[a]
	n.all += all
	n.unauthenticated += unauthenticated
	if n.all == 0 {
		delete(l.addresses, a)
		return
	}
	l.addresses[a] = n
}

// wake tells admit that something has changed.
func (l *Listener) wake() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// addressOf returns what connections are counted by; it is not valid for loopback and for what is no IP address.
func addressOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if !ip.IsValid() || ip.IsLoopback() {
		return netip.Prefix{}
	}
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}
