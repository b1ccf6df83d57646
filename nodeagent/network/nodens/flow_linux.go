package nodens

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

const (
	// mostFlows is how many flows of UDP there may be for each port and for egress; packets of more are lost.
	mostFlows = 8 << 10
	// flowTime is how long a flow lasts after its last packet.
	flowTime = time.Minute
	// mostPacket is the largest packet of UDP.
	mostPacket = 64 << 10
)

// flows are the conversations of UDP that go through this process.
type flows struct {
	passage passage
	mu      sync.Mutex
	all     map[flow]*conversation
	ended   bool
	done    sync.WaitGroup
}

func newFlows(p passage) *flows { return &flows{passage: p, all: map[flow]*conversation{}} }

// flow is who speaks to whom.
type flow struct{ client, target netip.AddrPort }

// end has no flow begin from now on, and waits for those that there are: their context has ended.
func (f *flows) end() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.done.Wait()
}

// conversation is a pair of connected sockets.
type conversation struct {
	near, far net.Conn
	mu        sync.Mutex
	last      time.Time
}

// send hands a packet to the conversation of a flow, which is begun if there is none.
func (f *flows) send(ctx context.Context, id flow, packet []byte, begin func(context.Context) (near, far net.Conn,
	err error)) {
	client := id.client.Addr()
	f.mu.Lock()
	c := f.all[id]
	full := len(f.all) >= mostFlows
	f.mu.Unlock()
	if c == nil {
		if full || !f.passage.Take(client, descriptorsOfFlow) {
			return // UDP may lose packets.
		}
		near, far, err := begin(ctx)
		if err != nil {
			f.passage.Give(client, descriptorsOfFlow)
			return
		}
		c = &conversation{near: near, far: far, last: time.Now()}
		f.mu.Lock()
		if f.ended {
			f.mu.Unlock()
			c.close()
			f.passage.Give(client, descriptorsOfFlow)
			return
		}
		f.all[id] = c
		f.done.Go(func() { f.converse(ctx, id, c) })
		f.mu.Unlock()
	}
	c.touch()
	_, _ = c.far.Write(packet)
}

// converse carries packets until none has come for flowTime.
func (f *flows) converse(ctx context.Context, id flow, c *conversation) {
	stop := context.AfterFunc(ctx, c.close)
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { c.carry(c.far, c.near) })
	both.Go(func() { c.carry(c.near, c.far) })
	both.Wait()
	c.close()
	f.passage.Give(id.client.Addr(), descriptorsOfFlow)
	f.mu.Lock()
	delete(f.all, id)
	f.mu.Unlock()
}

func (c *conversation) carry(to, from net.Conn) {
	buf := make([]byte, mostPacket)
	for {
		_ = from.SetReadDeadline(c.deadline())
		n, err := from.Read(buf)
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(c.deadline()) {
				continue // The other direction was used meanwhile.
			}
			// Also a port that nobody listens on: the flow ends, and the next packet begins another.
			c.close()
			return
		}
		c.touch()
		_, _ = to.Write(buf[:n])
	}
}

func (c *conversation) touch() {
	c.mu.Lock()
	c.last = time.Now()
	c.mu.Unlock()
}

func (c *conversation) deadline() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.Add(flowTime)
}

func (c *conversation) close() {
	c.near.Close()
	c.far.Close()
}
