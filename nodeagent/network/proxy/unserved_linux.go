package proxy

import (
	"errors"
	"fmt"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
)

// unserved is a port of the machine that a Service asks for, besides those of its load balancer, and has not got.
type unserved struct {
	service cache.Key
	uid     string
	port    Port
}

// errSCTP is why ports of SCTP are not served.
var errSCTP = errors.New("SCTP is not carried from the machine's ports")

func isSCTP(p *corev1.ServicePort) bool { return p.GetProtocol() == "SCTP" }

// what names the port in the words of the Service.
func (u unserved) what() string {
	if at := u.port.Listen; at.Addr().IsValid() {
		return fmt.Sprintf("external IP %s, port %d of %s,", at.Addr(), at.Port(), u.port.Network)
	}
	return fmt.Sprintf("node port %d of %s", u.port.Listen.Port(), u.port.Network)
}

// tellPorts writes an event when a node port or an external IP of a Service cannot be served on this machine, once,
// and one when it is after all. Addresses of load balancers have a condition, see lot.
func (p *Proxy) tellPorts() {
	p.mu.Lock()
	served, arrivals := p.served, p.arrivals
	p.mu.Unlock()
	now := map[unserved]string{}
	anyFailed := len(p.unserved) > 0
	for _, err := range served {
		anyFailed = anyFailed || err != nil
	}
	for _, s := range p.servicesOnMachine() {
		if !anyFailed && !slices.ContainsFunc(s.GetSpec().GetPorts(), isSCTP) {
			continue
		}
		key := cache.KeyOf(s)
		// Without the addresses of its load balancer, of which a condition tells.
		own := &corev1.Service{Metadata: s.GetMetadata(), Spec: s.GetSpec()}
		for _, port := range beyond(own) {
			u := unserved{service: key, uid: s.GetMetadata().GetUid(), port: port}
			now[u] = errSCTP.Error()
			if p.unserved[u] == "" {
				p.events.Event(s, record.Warning, "NodePortNotServed", "Serving",
					fmt.Sprintf("The %s is not served on node %s: %v", u.what(), p.cfg.NodeName, errSCTP))
			}
		}
		for _, port := range ports([]*corev1.Service{own}, arrivals) {
			u := unserved{service: key, uid: s.GetMetadata().GetUid(), port: port}
			err, known := served[port]
			if err == nil {
				if _, was := p.unserved[u]; was && known {
					p.events.Event(s, record.Normal, "NodePortServed", "Serving",
						fmt.Sprintf("The %s is served on node %s by now", u.what(), p.cfg.NodeName))
				}
				continue
			}
			now[u] = err.Error()
			if p.unserved[u] != now[u] {
				p.events.Event(s, record.Warning, "NodePortNotServed", "Serving",
					fmt.Sprintf("The %s is not served on node %s: %v. It is tried again", u.what(), p.cfg.NodeName, err))
			}
		}
	}
	p.unserved = now
}
