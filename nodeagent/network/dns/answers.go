package dns

import (
	"fmt"
	"sync"
	"time"

	mdns "github.com/miekg/dns"
)

const (
	// mostAnswers bounds the cache.
	mostAnswers = 10_000
	// longest is how long an answer is kept at most, so that a change of the world is seen soon.
	longest = 30 * time.Second
)

// answers keeps what other resolvers have said, as long as they said it may be kept, and at most longest.
type answers struct {
	mu  sync.Mutex
	has map[string]kept
}

type kept struct {
	answer        *mdns.Msg
	since, expiry time.Time
}

func newAnswers() *answers { return &answers{has: map[string]kept{}} }

// cacheKey names a question and what about its message changes the answer.
func cacheKey(q mdns.Question, m *mdns.Msg) string {
	do := m.IsEdns0() != nil && m.IsEdns0().Do()
	return fmt.Sprint(
		mdns.CanonicalName(q.Name), " ", q.Qtype, " ", q.Qclass, do, m.CheckingDisabled, m.AuthenticatedData)
}

// get returns a copy of an answer with the times that remain, or nil.
func (a *answers) get(key string, now time.Time) *mdns.Msg {
	a.mu.Lock()
	k, ok := a.has[key]
	if ok && !now.Before(k.expiry) {
		delete(a.has, key)
		ok = false
	}
	a.mu.Unlock()
	if !ok {
		return nil
	}
	out := k.answer.Copy()
	age := uint32(now.Sub(k.since) / time.Second) //nolint:gosec // at most longest
	for _, section := range [][]mdns.RR{out.Answer, out.Ns, out.Extra} {
		for _, rr := range section {
			if h := rr.Header(); h.Rrtype != mdns.TypeOPT {
				h.Ttl -= min(age, h.Ttl)
			}
		}
	}
	return out
}

// put keeps an answer if it may be kept. Where there is no room some other goes.
func (a *answers) put(key string, m *mdns.Msg, now time.Time) {
	life := lifetime(m)
	if life <= 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for other := range a.has {
		if len(a.has) < mostAnswers {
			break
		}
		delete(a.has, other)
	}
	a.has[key] = kept{answer: m.Copy(), since: now, expiry: now.Add(life)}
}

// lifetime says how long an answer may be kept: as long as the shortest-lived of its records, or, where it says that
// there is nothing, as its SOA says. Failures are not kept.
func lifetime(m *mdns.Msg) time.Duration {
	if m.Truncated || m.Rcode != mdns.RcodeSuccess && m.Rcode != mdns.RcodeNameError {
		return 0
	}
	life := longest
	shorten := func(seconds uint32) { life = min(life, time.Duration(seconds)*time.Second) }
	for _, rr := range m.Answer {
		shorten(rr.Header().Ttl)
	}
	if len(m.Answer) > 0 && m.Rcode == mdns.RcodeSuccess {
		return life
	}
	for _, rr := range m.Ns {
		if soa, ok := rr.(*mdns.SOA); ok {
			shorten(min(soa.Hdr.Ttl, soa.Minttl))
			return life
		}
	}
	return 0 // nobody says for how long there will be nothing
}
