package ingress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	networkingv1 "monoplane.dev/api/networking/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/ingress/certs"
	"monoplane.dev/controllers/ingress/front"
	"monoplane.dev/rules/endpoint"
)

// reconcile brings the endpoints of one Service up to date, or all routes.
func (c *Controller) reconcile(_ context.Context, k cache.Key) (time.Duration, error) {
	if k == everything {
		c.route()
		c.routed.Store(true)
		return 0, nil
	}
	for p, b := range c.backends[k] {
		c.fill(k, p, b)
	}
	if len(c.backends[k]) > 0 {
		c.routes.AddAfter(everything, gather) // there may be something to say about it, or no more
	}
	return 0, nil
}

// fill tells a backend its endpoints, and returns why the Service is not served; "" when it is, or may be.
func (c *Controller) fill(k cache.Key, p port, b *front.Backend) string {
	s, ok := c.services.Get(k.Namespace, k.Name)
	if !ok {
		b.Set(nil, false)
		return "" // it may be made later, and kubectl says so
	}
	at, http2 := resolve(s, p, c.slices.ByIndex(controller.ByService, k.String()))
	b.Set(at, http2)
	if s.GetSpec().GetType() == endpoint.ExternalName {
		return fmt.Sprintf("Service %s is of type ExternalName, which is not served", k)
	}
	return ""
}

// route makes the routes and certificates anew, and says what is odd about Ingresses.
func (c *Controller) route() {
	var mine []*networkingv1.Ingress
	served := map[cache.Key]bool{}
	for _, i := range c.ingresses.List("", nil) {
		if c.isMine(i) {
			mine, served[cache.KeyOf(i)] = append(mine, i), true
		}
	}
	used, usedSecrets := map[cache.Key]map[port]*front.Backend{}, map[cache.Key]bool{}
	compiler := compiler{
		backend: func(k cache.Key, p port) (*front.Backend, string) {
			b := used[k][p]
			if b == nil {
				b = c.backends[k][p]
			}
			if b == nil {
				b = &front.Backend{}
			}
			if used[k] == nil {
				used[k] = map[port]*front.Backend{}
			}
			used[k][p] = b
			return b, c.fill(k, p, b)
		},
		certificate: func(k cache.Key) (*tls.Certificate, error) {
			usedSecrets[k] = true
			return c.certificate(k)
		},
	}
	now, problems := compiler.compile(mine, c.byDefault)
	c.backends = used
	c.now.Store(now)
	maps.DeleteFunc(c.parsed, func(k cache.Key, _ parsed) bool { return !usedSecrets[k] })
	c.tell(mine, problems)
	// Who reads the status may come at once: it is written when requests are served. Of an Ingress of somebody else, only
	// what this process has written is taken away.
	for k := range c.served {
		if !served[k] {
			c.statuses.Add(k)
		}
	}
	for _, i := range mine {
		if _, differs := c.status(i); differs {
			c.statuses.Add(cache.KeyOf(i))
		}
	}
	c.served = served
}

// certificate returns the certificate in a Secret. It is read once for each change.
func (c *Controller) certificate(k cache.Key) (*tls.Certificate, error) {
	s, ok := c.secrets.Get(k.Namespace, k.Name)
	if !ok {
		return nil, errors.New("there is none of type kubernetes.io/tls")
	}
	revision := s.GetMetadata().GetUid() + s.GetMetadata().GetResourceVersion()
	p, ok := c.parsed[k]
	if !ok || p.revision != revision {
		p = parsed{revision: revision}
		p.certificate, p.err = certs.Parse(s.GetData())
		c.parsed[k] = p
	}
	return p.certificate, p.err
}

// tell records what is odd about Ingresses, each time that it is something else than before.
func (c *Controller) tell(mine []*networkingv1.Ingress, problems map[cache.Key][]problem) {
	told := map[cache.Key]string{}
	for _, i := range mine {
		k := cache.KeyOf(i)
		var all strings.Builder
		for _, p := range problems[k] {
			all.WriteString(p.reason + p.note + "\n")
		}
		if all.Len() == 0 {
			continue
		}
		told[k] = i.GetMetadata().GetUid() + all.String()
		if told[k] == c.told[k] {
			continue
		}
		for _, p := range problems[k][:min(len(problems[k]), mostTold)] {
			if !strings.Contains(c.told[k], p.reason+p.note+"\n") {
				c.events.Event(i, record.Warning, p.reason, syncing, p.note)
			}
		}
	}
	c.told = told
}

// mostTold is how many events there are at once about one Ingress.
const mostTold = 10

// The class of an Ingress, and the annotation that named it before there was a field.
const (
	className       = "monoplane"
	controllerName  = "monoplane.dev/ingress"
	classAnnotation = "kubernetes.io/ingress.class"
	defaultClass    = "ingressclass.kubernetes.io/is-default-class"
)

// isMine says whether an Ingress is of a class that this controller serves. One without a class is nobody's.
func (c *Controller) isMine(i *networkingv1.Ingress) bool {
	name := i.GetSpec().GetIngressClassName()
	if name == "" {
		name = i.GetMetadata().GetAnnotations()[classAnnotation]
	}
	class, ok := c.classes.Get("", name)
	return ok && name != "" && class.GetSpec().GetController() == controllerName
}

// isDefault says whether Ingresses that name no class are of this one.
func isDefault(class *networkingv1.IngressClass) bool {
	return class.GetMetadata().GetAnnotations()[defaultClass] == "true"
}

// anyDefault says whether there is a class for Ingresses that name none.
func (c *Controller) anyDefault() bool {
	return slices.ContainsFunc(c.classes.List("", nil), isDefault)
}
