package dns

import (
	"math/rand/v2"
	"net/netip"
	"strings"

	mdns "github.com/miekg/dns"
)

// Covers says whether the zone has the say about a name: those of the cluster, and of addresses that it knows. name is
// canonical.
func (z *Zone) covers(name string) bool {
	if mdns.IsSubDomain(z.domain, name) {
		return true
	}
	a, ok := reverse(name)
	if !ok {
		return false
	}
	z.mu.RLock()
	defer z.mu.RUnlock()
	return len(z.pointers[a]) > 0
}

// answer adds to reply what the zone has for a question. When cname is not empty, the asker is to look for that, and
// gets it in addition where the server can find it.
func (z *Zone) answer(reply *mdns.Msg, q mdns.Question) (cname string) {
	name := mdns.CanonicalName(q.Name)
	z.mu.RLock()
	defer z.mu.RUnlock()
	if !z.ready {
		reply.Rcode = mdns.RcodeServerFailure
		return ""
	}
	reply.Authoritative = true
	if a, ok := reverse(name); ok && !mdns.IsSubDomain(z.domain, name) {
		for _, target := range z.pointer(a) {
			if q.Qtype == mdns.TypePTR || q.Qtype == mdns.TypeANY {
				reply.Answer = append(reply.Answer, &mdns.PTR{Hdr: header(q.Name, mdns.TypePTR), Ptr: target})
			}
		}
		return ""
	}
	r := z.names[name]
	if r == nil {
		r = z.pod(name)
	}
	switch {
	case name == "dns-version."+z.domain:
		if q.Qtype == mdns.TypeTXT || q.Qtype == mdns.TypeANY {
			reply.Answer = append(reply.Answer, &mdns.TXT{Hdr: header(q.Name, mdns.TypeTXT), Txt: []string{"1.1.0"}})
		}
	case r == nil:
		reply.Rcode = mdns.RcodeNameError
	case r.cname != "":
		reply.Answer = append(reply.Answer, &mdns.CNAME{Hdr: header(q.Name, mdns.TypeCNAME), Target: r.cname})
		if q.Qtype != mdns.TypeCNAME && q.Qtype != mdns.TypeANY {
			return r.cname
		}
	default:
		r.fill(reply, q)
	}
	if name == z.domain && q.Qtype == mdns.TypeSOA {
		reply.Answer = append(reply.Answer, z.soa())
	} else if len(reply.Answer) == 0 {
		reply.Ns = append(reply.Ns, z.soa())
	}
	return ""
}

// fill adds the records of the type that was asked for. Addresses begin with a random one, for clients that take the
// first.
func (r *record) fill(reply *mdns.Msg, q mdns.Question) {
	want := func(t uint16) bool { return q.Qtype == t || q.Qtype == mdns.TypeANY }
	if want(mdns.TypeA) {
		reply.Answer = appendAddresses(reply.Answer, q.Name, r.v4)
	}
	if want(mdns.TypeAAAA) {
		reply.Answer = appendAddresses(reply.Answer, q.Name, r.v6)
	}
	if !want(mdns.TypeSRV) || len(r.srv) == 0 {
		return
	}
	weight := uint16(max(1, 100/len(r.srv))) //nolint:gosec // at most 100
	told := map[string]bool{}
	for _, s := range r.srv {
		reply.Answer = append(reply.Answer, &mdns.SRV{
			Hdr: header(q.Name, mdns.TypeSRV), Weight: weight, Port: s.port, Target: s.target,
		})
		if !told[s.target] {
			told[s.target] = true
			reply.Extra = appendAddresses(reply.Extra, s.target, s.addrs)
		}
	}
}

func appendAddresses(to []mdns.RR, name string, addrs []netip.Addr) []mdns.RR {
	if len(addrs) == 0 {
		return to
	}
	first := rand.IntN(len(addrs)) //nolint:gosec // nothing depends on its secrecy
	for i := range addrs {
		a := addrs[(first+i)%len(addrs)]
		if a.Is4() {
			to = append(to, &mdns.A{Hdr: header(name, mdns.TypeA), A: a.AsSlice()})
		} else {
			to = append(to, &mdns.AAAA{Hdr: header(name, mdns.TypeAAAA), AAAA: a.AsSlice()})
		}
	}
	return to
}

func header(name string, rrtype uint16) mdns.RR_Header {
	return mdns.RR_Header{Name: name, Rrtype: rrtype, Class: mdns.ClassINET, Ttl: ttl}
}

// soa is what an answer without records comes with: it says how long that may be kept.
func (z *Zone) soa() *mdns.SOA {
	return &mdns.SOA{
		Hdr: header(z.domain, mdns.TypeSOA), Ns: "ns.dns." + z.domain, Mbox: "hostmaster." + z.domain, Serial: 1,
		Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl,
	}
}

// pod returns the record of a name such as 10-1-0-7.default.pod: the address that it says, where the namespace exists.
// As with the usual cluster DNS nobody looks whether there is such a pod.
func (z *Zone) pod(name string) *record {
	rest, ok := strings.CutSuffix(name, ".pod."+z.domain)
	if !ok {
		return nil
	}
	host, namespace, ok := strings.Cut(rest, ".")
	if !ok || !z.namespaces[namespace] {
		return nil
	}
	text := strings.ReplaceAll(host, "-", ".")
	if strings.Count(host, "-") != 3 || strings.Contains(host, "--") {
		text = strings.ReplaceAll(host, "-", ":")
	}
	r := &record{}
	if _, ok := r.add(text); !ok {
		return nil
	}
	return r
}

// reverse returns the address that a name in in-addr.arpa or ip6.arpa is of.
func reverse(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		labels := strings.Split(rest, ".")
		if len(labels) != 4 {
			return netip.Addr{}, false
		}
		a, err := netip.ParseAddr(labels[3] + "." + labels[2] + "." + labels[1] + "." + labels[0])
		return a, err == nil
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa.")
	if !ok || len(rest) != 63 {
		return netip.Addr{}, false
	}
	var b strings.Builder
	for i := 62; i >= 0; i -= 2 {
		b.WriteByte(rest[i])
		if i > 0 && rest[i-1] != '.' {
			return netip.Addr{}, false
		}
		if n := 31 - i/2; n%4 == 3 && i > 0 {
			b.WriteByte(':')
		}
	}
	a, err := netip.ParseAddr(b.String())
	return a, err == nil
}
