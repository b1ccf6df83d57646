package dns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	mdns "github.com/miekg/dns"
	"golang.org/x/sync/singleflight"

	"monoplane.dev/internal/descriptors"
	"monoplane.dev/internal/share"
)

const (
	// mostForwards bounds the questions of all clients that wait for other resolvers.
	mostForwards = 512
	// patience is how long one resolver may take, mostServers how many are asked, rounds how often each.
	patience    = 2 * time.Second
	mostServers = 3
	rounds      = 2
	// rereading is how often the machine's resolvers are looked up, probing how often loops are looked for.
	rereading = 10 * time.Second
	probing   = 30 * time.Second
)

var (
	errNoResolvers = errors.New("the machine names no resolver")
	errLoop        = errors.New("the machine's resolvers ask this server: questions would go in a circle")
)

// forwarder asks the resolvers of the machine.
type forwarder struct {
	cfg   Config
	cache *answers
	group singleflight.Group
	// room is for the questions that wait, each of which has a socket.
	room *share.Room[netip.Addr]

	mu      sync.Mutex
	servers []string
	read    time.Time

	// probe is the name that is asked for to find loops; looping is whether it came back.
	probe   string
	looping atomic.Bool
}

func newForwarder(cfg Config) *forwarder {
	return &forwarder{
		cfg: cfg, cache: newAnswers(),
		room:  share.NewRoom[netip.Addr](min(mostForwards, descriptors.Services.Count()/4)),
		probe: fmt.Sprintf("%016x.%016x.loop.", rand.Uint64(), rand.Uint64()), //nolint:gosec // unlikely is enough
	}
}

// ask returns what the resolvers, or the cache, say to a question of a message. Who asks the same at the same time
// waits for one answer.
func (f *forwarder) ask(ctx context.Context, q mdns.Question, m *mdns.Msg) (*mdns.Msg, error) {
	if mdns.CanonicalName(q.Name) == f.probe {
		f.looping.Store(true)
		return nil, errLoop
	}
	if f.looping.Load() {
		return nil, errLoop
	}
	key := cacheKey(q, m)
	if found := f.cache.get(key, time.Now()); found != nil {
		return found, nil
	}
	got, err, _ := f.group.Do(key, func() (any, error) {
		answer, err := f.askServers(ctx, q, m)
		if err == nil {
			f.cache.put(key, answer, time.Now())
		}
		return answer, err
	})
	if err != nil {
		return nil, err
	}
	return got.(*mdns.Msg).Copy(), nil //nolint:forcetypeassert // what the function returns
}

// askServers asks one resolver after the other.
func (f *forwarder) askServers(ctx context.Context, q mdns.Question, m *mdns.Msg) (*mdns.Msg, error) {
	servers, err := f.resolvers()
	if err != nil {
		return nil, err
	}
	req := new(mdns.Msg)
	req.Question = []mdns.Question{q}
	req.RecursionDesired, req.CheckingDisabled, req.AuthenticatedData = true, m.CheckingDisabled, m.AuthenticatedData
	req.SetEdns0(largest, m.IsEdns0() != nil && m.IsEdns0().Do())
	var last *mdns.Msg
	for range rounds {
		for _, server := range servers {
			answer, askErr := f.exchange(ctx, server, req)
			if askErr != nil {
				err = fmt.Errorf("resolver %s: %w", server, askErr)
				continue
			}
			if answer.Rcode == mdns.RcodeServerFailure || answer.Rcode == mdns.RcodeRefused {
				last = answer
				continue // another may know better
			}
			return answer, nil
		}
		if last != nil {
			return last, nil
		}
	}
	return nil, err
}

// exchange asks a resolver over UDP, and over TCP where the answer does not fit.
func (f *forwarder) exchange(ctx context.Context, server string, req *mdns.Msg) (*mdns.Msg, error) {
	answer, err := f.exchangeOver(ctx, "udp", server, req)
	if err == nil && answer.Truncated {
		return f.exchangeOver(ctx, "tcp", server, req)
	}
	return answer, err
}

func (f *forwarder) exchangeOver(ctx context.Context, network, server string, req *mdns.Msg) (*mdns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	raw, err := f.cfg.Dial(ctx, network, server)
	if err != nil {
		return nil, err
	}
	conn := &mdns.Conn{Conn: raw, UDPSize: mdns.MaxMsgSize}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	own := req.Copy()              // each attempt has an id that nobody can know
	own.Id = uint16(rand.Uint32()) //nolint:gosec // from the seed of the run time, which nobody sees
	if err := conn.WriteMsg(own); err != nil {
		return nil, err
	}
	for {
		answer, err := conn.ReadMsg()
		var parse *mdns.Error
		if err != nil && !errors.As(err, &parse) {
			return nil, err
		}
		if err == nil && answer.Response && answer.Id == own.Id && len(answer.Question) == 1 &&
			sameQuestion(answer.Question[0], own.Question[0]) {
			return answer, nil
		}
		if network == "tcp" {
			return nil, errors.New("the answer is not one to the question")
		}
	}
}

func sameQuestion(a, b mdns.Question) bool {
	return strings.EqualFold(a.Name, b.Name) && a.Qtype == b.Qtype && a.Qclass == b.Qclass
}

// resolvers returns the addresses of the machine's resolvers.
func (f *forwarder) resolvers() ([]string, error) {
	if f.cfg.Resolver == nil {
		return nil, errNoResolvers
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read.IsZero() || time.Since(f.read) > rereading {
		c, err := f.cfg.Resolver()
		if err != nil {
			if len(f.servers) > 0 {
				return f.servers, nil
			}
			return nil, fmt.Errorf("reading the machine's resolvers: %w", err)
		}
		f.servers, f.read = nil, time.Now()
		for _, server := range c.Servers[:min(len(c.Servers), mostServers)] {
			if _, _, err := net.SplitHostPort(server); err != nil {
				server = net.JoinHostPort(server, "53")
			}
			f.servers = append(f.servers, server)
		}
	}
	if len(f.servers) == 0 {
		return nil, errNoResolvers
	}
	return f.servers, nil
}

// watchForLoops asks the resolvers for a name that nobody else asks for. When the question arrives here, nothing is
// forwarded until it no longer does.
func (f *forwarder) watchForLoops(ctx context.Context) error {
	q := mdns.Question{Name: f.probe, Qtype: mdns.TypeHINFO, Qclass: mdns.ClassINET}
	t := time.NewTicker(probing)
	defer t.Stop()
	was := false
	for {
		f.looping.Store(false)
		_, _ = f.askServers(ctx, q, new(mdns.Msg))
		if is := f.looping.Load(); is != was {
			was = is
			if is {
				f.cfg.Logger.Error("Names outside of the cluster cannot be resolved", "err", errLoop)
			} else {
				f.cfg.Logger.Info("The machine's resolvers no longer ask this server")
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}
