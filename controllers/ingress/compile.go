package ingress

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"maps"
	"slices"

	networkingv1 "monoplane.dev/api/networking/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/ingress/certs"
	"monoplane.dev/controllers/ingress/front"
	"monoplane.dev/controllers/ingress/route"
)

// Reasons of events.
const (
	reasonConflict = "RuleConflict"
	reasonBackend  = "BackendNotServed"
	reasonSecret   = "TLSSecretNotUsed"
)

// problem is something about an Ingress that is not served as it says.
type problem struct{ reason, note string }

// compiler makes routes and certificates of Ingresses.
type compiler struct {
	// backend returns the backend of a port of a Service, and why it is not served; "" when it is, or may be.
	backend func(service cache.Key, p port) (*front.Backend, string)
	// certificate returns that of a Secret, or what is wrong with it.
	certificate func(secret cache.Key) (*tls.Certificate, error)

	rules    []route.Rule[*front.Backend]
	from     []origin // of rules
	other    **front.Backend
	entries  []certs.Entry
	problems map[cache.Key][]problem
}

// origin says where a rule is written.
type origin struct {
	ingress cache.Key
	field   string
}

// compiled is what counts for requests.
type compiled struct {
	routes       *route.Table[*front.Backend]
	certificates *certs.Set
}

// compile makes the routes of all Ingresses, and returns what is not served as it says. Of two that say the same the
// older one counts.
func (c *compiler) compile(
	all []*networkingv1.Ingress, byDefault *tls.Certificate,
) (*compiled, map[cache.Key][]problem) {
	c.problems = map[cache.Key][]problem{}
	slices.SortFunc(all, older)
	for _, i := range all {
		c.add(i)
	}
	table, repeated := route.New(c.rules, c.other)
	for _, pair := range repeated {
		r := c.rules[pair.Rule]
		if r.Kind == route.Fallback {
			continue // several have one, and one counts
		}
		c.complain(c.from[pair.Rule].ingress, reasonConflict,
			"%s: host %q and path %q are served as %s of Ingress %s says, which came first", c.from[pair.Rule].field, r.Host,
			r.Path, c.from[pair.Earlier].field, c.from[pair.Earlier].ingress)
	}
	return &compiled{routes: table, certificates: certs.New(c.entries, byDefault)}, c.problems
}

func older(a, b *networkingv1.Ingress) int {
	m, o := a.GetMetadata(), b.GetMetadata()
	return cmp.Or(cmp.Compare(m.GetCreationTimestamp().GetSeconds(), o.GetCreationTimestamp().GetSeconds()),
		cmp.Compare(m.GetNamespace(), o.GetNamespace()), cmp.Compare(m.GetName(), o.GetName()))
}

func (c *compiler) complain(k cache.Key, reason, note string, args ...any) {
	c.problems[k] = append(c.problems[k], problem{reason, fmt.Sprintf(note, args...)})
}

// add adds the rules and certificates of one Ingress.
func (c *compiler) add(i *networkingv1.Ingress) {
	k, spec := cache.KeyOf(i), i.GetSpec()
	var fallback *front.Backend
	if spec.GetDefaultBackend() != nil {
		fallback = c.target(k, "spec.defaultBackend", spec.GetDefaultBackend())
		if c.other == nil {
			c.other = &fallback
		}
	}
	hosts := map[string]bool{}
	for n, r := range spec.GetRules() {
		for m, p := range r.GetIngressRuleValue().GetHttp().GetPaths() {
			field := fmt.Sprintf("spec.rules[%d].http.paths[%d]", n, m)
			kind := route.Prefix // which is what ImplementationSpecific is here
			if p.GetPathType() == "Exact" {
				kind = route.Exact
			}
			c.rule(origin{k, field}, route.Rule[*front.Backend]{
				Host: r.GetHost(), Path: p.GetPath(), Kind: kind, Target: c.target(k, field+".backend", p.GetBackend()),
			})
		}
		if spec.GetDefaultBackend() != nil && !hosts[r.GetHost()] {
			c.rule(origin{k, "spec.defaultBackend"}, route.Rule[*front.Backend]{
				Host: r.GetHost(), Kind: route.Fallback, Target: fallback,
			})
		}
		hosts[r.GetHost()] = true
	}
	for n, t := range spec.GetTls() {
		c.tls(k, fmt.Sprintf("spec.tls[%d].secretName", n), t, hosts)
	}
}

func (c *compiler) rule(from origin, r route.Rule[*front.Backend]) {
	c.rules, c.from = append(c.rules, r), append(c.from, from)
}

// target returns the backend that a part of an Ingress names; nil for one that is not served.
func (c *compiler) target(k cache.Key, field string, b *networkingv1.IngressBackend) *front.Backend {
	if r := b.GetResource(); r != nil {
		c.complain(k, reasonBackend, "%s.resource: %s %q: backends that are no Services are not served: 503", field,
			r.GetKind(), r.GetName())
		return nil
	}
	service := cache.Key{Namespace: k.Namespace, Name: b.GetService().GetName()}
	backend, why := c.backend(service, portOf(b.GetService()))
	if why != "" {
		c.complain(k, reasonBackend, "%s.service: %s: 503", field, why)
	}
	return backend
}

// tls adds the certificate of a part of an Ingress. One that names no hosts is for those of the rules.
func (c *compiler) tls(k cache.Key, field string, t *networkingv1.IngressTLS, hosts map[string]bool) {
	if t.GetSecretName() == "" {
		return // the default certificate
	}
	secret := cache.Key{Namespace: k.Namespace, Name: t.GetSecretName()}
	certificate, err := c.certificate(secret)
	if err != nil {
		c.complain(k, reasonSecret, "%s: Secret %s: %v; the default certificate is shown", field, secret, err)
		return
	}
	e := certs.Entry{Hosts: t.GetHosts(), Certificate: certificate}
	if len(e.Hosts) == 0 && !hosts[""] {
		e.Hosts = slices.Sorted(maps.Keys(hosts))
	}
	c.entries = append(c.entries, e)
}
