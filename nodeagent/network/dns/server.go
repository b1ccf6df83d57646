package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	mdns "github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"monoplane.dev/internal/descriptors"
	"monoplane.dev/internal/share"
	"monoplane.dev/nodeagent/resolvconf"
)

const (
	// largest is the largest answer over UDP, in bytes: what goes through every network in one piece.
	largest = 1232
	// readers is how many goroutines serve a UDP socket.
	readers = 4
	// mostConns bounds the TCP connections of all clients, idleTime how long one may be silent.
	mostConns = 256
	idleTime  = 10 * time.Second
	// mostQueries is how many questions a connection may ask.
	mostQueries = 1000
	// mostNames bounds how many external names lead to each other.
	mostNames = 8
)

// Config is what a Server works with. Zone is required.
type Config struct {
	Zone *Zone
	// Resolver says which resolvers are asked for other names, and is asked again now and then; without one, or without
	// servers, other names are refused. Addresses at which this Server itself answers must not be among them.
	Resolver func() (resolvconf.Config, error)
	// Dial connects to a resolver; an ordinary connection of this process when nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger defaults to none.
	Logger *slog.Logger
}

// Server answers questions.
type Server struct {
	cfg     Config
	zone    *Zone
	forward *forwarder
	// conns is the room for connections of TCP, which clients share.
	conns *share.Room[netip.Addr]
}

// NewServer returns a server that serves no socket yet.
func NewServer(cfg Config) (*Server, error) {
	if cfg.Zone == nil {
		return nil, errors.New("dns: Zone is missing")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	return &Server{cfg: cfg, zone: cfg.Zone, forward: newForwarder(cfg),
		conns: share.NewRoom[netip.Addr](min(mostConns, descriptors.Services.Count()/4))}, nil
}

// Serve answers on sockets until ctx ends, and closes them. A packet socket must be bound to one address, from which
// its answers go out.
func (s *Server) Serve(ctx context.Context, packets []net.PacketConn, listeners []net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.forward.watchForLoops(ctx) })
	for _, p := range packets {
		stop := context.AfterFunc(ctx, func() { _ = p.Close() })
		defer stop()
		for range readers {
			group.Go(func() error { return s.servePackets(ctx, p) })
		}
	}
	for _, l := range listeners {
		server := &mdns.Server{
			Listener: share.Listen(l, s.conns, share.Address), Net: "tcp", ReadTimeout: idleTime, WriteTimeout: idleTime,
			IdleTimeout: func() time.Duration { return idleTime }, MaxTCPQueries: mostQueries,
			Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, m *mdns.Msg) { s.serveTCP(ctx, w, m) }),
			// The usual function drops what it does not like; here everything that can be read is answered.
			MsgAcceptFunc: func(mdns.Header) mdns.MsgAcceptAction { return mdns.MsgAccept },
		}
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		group.Go(func() error {
			err := server.ActivateAndServe()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("answering over TCP: %w", err)
		})
		group.Go(func() error {
			select {
			case <-started:
				<-ctx.Done()
				_ = server.Shutdown()
			case <-ctx.Done():
			}
			_ = l.Close()
			return ctx.Err()
		})
	}
	return group.Wait()
}

// servePackets answers one datagram after the other. Questions for other resolvers are waited for elsewhere.
func (s *Server) servePackets(ctx context.Context, p net.PacketConn) error {
	buf := make([]byte, mdns.MaxMsgSize)
	for {
		n, from, err := p.ReadFrom(buf)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("answering over UDP: %w", err)
		}
		if err != nil {
			continue // an ICMP message about an earlier answer
		}
		s.HandlePacket(ctx, share.Address(from), buf[:n], func(answer []byte) { _, _ = p.WriteTo(answer, from) })
	}
}

// HandlePacket answers a message of a client's datagram by reply, at once or later, or not at all. It does not keep
// the bytes.
func (s *Server) HandlePacket(ctx context.Context, client netip.Addr, packet []byte, reply func([]byte)) {
	m := new(mdns.Msg)
	if err := m.Unpack(packet); err != nil {
		if len(packet) < 12 || packet[2]&0x80 != 0 {
			return // no question, or an answer: answering could go on for ever
		}
		bad := new(mdns.Msg)
		bad.Id = uint16(packet[0])<<8 | uint16(packet[1])
		bad.Response, bad.Rcode = true, mdns.RcodeFormatError
		send(bad, largest, reply)
		return
	}
	if m.Response {
		return
	}
	size := mdns.MinMsgSize
	if opt := m.IsEdns0(); opt != nil {
		size = min(max(int(opt.UDPSize()), mdns.MinMsgSize), largest)
	}
	out, other := s.local(m)
	if other == nil {
		send(out, size, reply)
		return
	}
	if !s.forward.room.Take(client, 1) {
		out.Rcode = mdns.RcodeServerFailure
		send(out, size, reply)
		return
	}
	go func() {
		defer s.forward.room.Give(client, 1)
		send(s.finish(ctx, m, out, other), size, reply)
	}()
}

func (s *Server) serveTCP(ctx context.Context, w mdns.ResponseWriter, m *mdns.Msg) {
	if m.Response {
		_ = w.Close()
		return
	}
	out, other := s.local(m)
	if client := share.Address(w.RemoteAddr()); other != nil {
		if s.forward.room.Take(client, 1) {
			out = s.finish(ctx, m, out, other)
			s.forward.room.Give(client, 1)
		} else {
			out.Rcode = mdns.RcodeServerFailure
		}
	}
	send(out, mdns.MaxMsgSize, func(b []byte) { _, _ = w.Write(b) })
}

// send packs an answer in as many bytes as it may have.
func send(m *mdns.Msg, size int, reply func([]byte)) {
	m.Compress = true
	m.Truncate(size)
	b, err := m.Pack()
	if err != nil { // names from elsewhere that cannot be written
		m.Answer, m.Ns, m.Extra, m.Rcode = nil, nil, nil, mdns.RcodeServerFailure
		if b, err = m.Pack(); err != nil {
			return
		}
	}
	reply(b)
}

// local answers from the zone. Where that is not enough, other is the question that remains for other resolvers.
func (s *Server) local(m *mdns.Msg) (out *mdns.Msg, other *mdns.Question) {
	out = new(mdns.Msg)
	out.Id, out.Response, out.Opcode, out.RecursionDesired = m.Id, true, m.Opcode, m.RecursionDesired
	out.RecursionAvailable, out.CheckingDisabled = true, m.CheckingDisabled
	if opt := m.IsEdns0(); opt != nil {
		out.SetEdns0(largest, opt.Do())
		if opt.Version() != 0 {
			out.IsEdns0().SetExtendedRcode(mdns.RcodeBadVers)
			out.Rcode = mdns.RcodeBadVers
			return out, nil
		}
	}
	switch {
	case m.Opcode != mdns.OpcodeQuery:
		out.Rcode = mdns.RcodeNotImplemented
		return out, nil
	case len(m.Question) != 1:
		out.Rcode = mdns.RcodeFormatError
		return out, nil
	}
	q := m.Question[0]
	out.Question = m.Question
	if q.Qclass != mdns.ClassINET || q.Qtype == mdns.TypeAXFR || q.Qtype == mdns.TypeIXFR {
		out.Rcode = mdns.RcodeRefused
		return out, nil
	}
	for range mostNames {
		if !s.zone.covers(mdns.CanonicalName(q.Name)) {
			return out, &q
		}
		next := s.zone.answer(out, q)
		if next == "" {
			return out, nil
		}
		q.Name = next
	}
	out.Rcode = mdns.RcodeServerFailure // external names in a circle
	return out, nil
}

// finish asks other resolvers what remains, and adds that to the answer.
func (s *Server) finish(ctx context.Context, m, out *mdns.Msg, other *mdns.Question) *mdns.Msg {
	found, err := s.forward.ask(ctx, *other, m)
	if err != nil {
		s.cfg.Logger.Debug("A name could not be resolved", "name", other.Name, "err", err)
		out.Rcode = mdns.RcodeServerFailure
		if errors.Is(err, errNoResolvers) {
			out.Rcode = mdns.RcodeRefused
		}
		return out
	}
	out.Rcode, out.Authoritative = found.Rcode, out.Authoritative && len(out.Answer) > 0
	out.AuthenticatedData = found.AuthenticatedData && len(out.Answer) == 0
	out.Answer = append(out.Answer, found.Answer...)
	out.Ns = append(out.Ns, found.Ns...)
	for _, rr := range found.Extra {
		if rr.Header().Rrtype != mdns.TypeOPT {
			out.Extra = append([]mdns.RR{rr}, out.Extra...)
		}
	}
	return out
}
