package dns

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	mdns "github.com/miekg/dns"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	"monoplane.dev/client/cache"
)

// ttl is how long the cluster's records may be kept, in seconds.
const ttl = 5

// record is what a name has of one Service.
type record struct {
	v4, v6 []netip.Addr
	srv    []service
	// cname stands for all else.
	cname string
}

// service is a port at a name.
type service struct {
	port   uint16
	target string
	addrs  []netip.Addr
}

// Zone has the records of the cluster. Its methods may be called from any goroutine.
type Zone struct {
	// domain is the cluster domain, such as "cluster.local.": lower case, with a dot at its end.
	domain string

	mu sync.RWMutex
	// names has the records by full name; a name between others, such as a namespace, has an empty one. uses counts
	// what needs a name: the records of a Service, and names below.
	names map[string]*record
	uses  map[string]int
	// pointers has the names of addresses, by whose they are.
	pointers map[netip.Addr]map[cache.Key]string
	// services are the names and addresses that each Service has made.
	services   map[cache.Key]made
	namespaces map[string]bool
	ready      bool
}

// made are the records of a Service, to be taken away with it.
type made struct {
	names map[string]*record
	addrs map[netip.Addr]string
}

// NewZone returns a zone without records for a cluster domain.
func NewZone(domain string) *Zone {
	z := &Zone{
		domain: mdns.CanonicalName(domain), names: map[string]*record{}, uses: map[string]int{},
		pointers: map[netip.Addr]map[cache.Key]string{}, services: map[cache.Key]made{}, namespaces: map[string]bool{},
	}
	for _, name := range []string{"svc." + z.domain, "pod." + z.domain} {
		z.use(name)
	}
	return z
}

// Open says that all Services are known: from now on names that are not there do not exist.
func (z *Zone) Open() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.ready = true
}

// SetNamespace says whether a namespace exists, for names of pods.
func (z *Zone) SetNamespace(name string, exists bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.namespaces[name] == exists {
		return
	}
	if exists {
		z.namespaces[name] = true
		z.use(name + ".pod." + z.domain)
		z.use(name + ".svc." + z.domain)
		return
	}
	delete(z.namespaces, name)
	z.drop(name + ".pod." + z.domain)
	z.drop(name + ".svc." + z.domain)
}

// Set makes the records of a Service those of the objects, all at once. Slices are those of the Service.
func (z *Zone) Set(s *corev1.Service, eps []*discoveryv1.EndpointSlice) {
	m := recordsOf(z.domain, s, eps)
	z.mu.Lock()
	defer z.mu.Unlock()
	key := cache.KeyOf(s)
	old := z.services[key]
	z.put(key, m)
	z.take(key, old, m)
}

// Delete takes the records of a Service away.
func (z *Zone) Delete(key cache.Key) {
	z.mu.Lock()
	defer z.mu.Unlock()
	old := z.services[key]
	delete(z.services, key)
	z.take(key, old, made{})
}

func (z *Zone) put(key cache.Key, m made) {
	before := z.services[key]
	z.services[key] = m
	for name, r := range m.names {
		if before.names[name] == nil {
			z.use(name)
		}
		z.names[name] = r
	}
	for a, name := range m.addrs {
		if z.pointers[a] == nil {
			z.pointers[a] = map[cache.Key]string{}
		}
		z.pointers[a][key] = name
	}
}

// take takes away what a Service had and has no more.
func (z *Zone) take(key cache.Key, old, now made) {
	for name := range old.names {
		if now.names[name] == nil {
			z.names[name] = &record{}
			z.drop(name)
		}
	}
	for a := range old.addrs {
		if _, still := now.addrs[a]; !still {
			if delete(z.pointers[a], key); len(z.pointers[a]) == 0 {
				delete(z.pointers, a)
			}
		}
	}
}

// use makes a name and those above it exist.
func (z *Zone) use(name string) {
	for ; strings.HasSuffix(name, z.domain); name = above(name) {
		if z.uses[name]++; z.uses[name] > 1 {
			return
		}
		z.names[name] = &record{}
		if name == z.domain {
			return
		}
	}
}

// drop is the opposite of use.
func (z *Zone) drop(name string) {
	for ; strings.HasSuffix(name, z.domain); name = above(name) {
		if z.uses[name]--; z.uses[name] > 0 {
			return
		}
		delete(z.uses, name)
		delete(z.names, name)
		if name == z.domain {
			return
		}
	}
}

func above(name string) string {
	_, rest, _ := strings.Cut(name, ".")
	return rest
}

// pointer returns the names that an address has.
func (z *Zone) pointer(a netip.Addr) []string {
	var out []string
	for _, name := range z.pointers[a] {
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
