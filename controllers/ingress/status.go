package ingress

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	metav1 "monoplane.dev/api/meta/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
	networkingv1rpc "monoplane.dev/api/networking/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/object"
)

// makeClass makes the class that this controller serves, unless it is there, and then waits for the end of ctx.
// Without any default class it is the one.
func (c *Controller) makeClass(ctx context.Context) error {
	if err := controller.WaitForSync(ctx, c.classes); err != nil {
		return err
	}
	for {
		err := c.createClass(ctx)
		if err == nil {
			c.classed.Store(true)
			<-ctx.Done()
			return ctx.Err()
		}
		c.cfg.Logger.Warn("the class of Ingresses cannot be made; it is tried again", "class", className, "error", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Controller) createClass(ctx context.Context) error {
	if class, ok := c.classes.Get("", className); ok {
		if is := class.GetSpec().GetController(); is != controllerName {
			c.cfg.Logger.Warn("the class of Ingresses is another controller's: none of it is served here", "class", className,
				"controller", is)
		}
		return nil
	}
	class := &networkingv1.IngressClass{
		Metadata: &metav1.ObjectMeta{Name: className},
		Spec:     &networkingv1.IngressClassSpec{Controller: controllerName},
	}
	if !c.anyDefault() {
		class.Metadata.Annotations = map[string]string{defaultClass: "true"}
	}
	_, err := c.cfg.Client.IngressClasses.Create(ctx, &networkingv1rpc.CreateIngressClassRequest{Object: class})
	if apierrors.Is(err, apierrors.AlreadyExists) {
		return nil
	}
	return err
}

// writeStatus says in the status of an Ingress where it is reached, and takes that away again when it is not served
// any more.
func (c *Controller) writeStatus(ctx context.Context, k cache.Key) (time.Duration, error) {
	i, ok := c.ingresses.Get(k.Namespace, k.Name)
	if !ok {
		return 0, nil
	}
	want, differs := c.status(i)
	if !differs {
		return 0, nil
	}
	next := object.Clone(i)
	next.Status = &networkingv1.IngressStatus{LoadBalancer: &networkingv1.IngressLoadBalancerStatus{Ingress: want}}
	_, err := c.cfg.Client.Ingresses.UpdateStatus(ctx, &networkingv1rpc.UpdateIngressRequest{
		Namespace: k.Namespace, Name: k.Name, Object: next,
	})
	if apierrors.Is(err, apierrors.NotFound) {
		return 0, nil
	}
	return 0, err
}

// status returns where an Ingress is reached, and whether its status says something else. What other servers of the
// same etcd have written stays.
func (c *Controller) status(i *networkingv1.Ingress) (want []*networkingv1.IngressLoadBalancerIngress, differs bool) {
	has, ours := i.GetStatus().GetLoadBalancer().GetIngress(), c.addresses()
	others := slices.DeleteFunc(slices.Clone(has), func(at *networkingv1.IngressLoadBalancerIngress) bool {
		return slices.ContainsFunc(c.cfg.Entry.Addresses, func(a netip.Addr) bool { return a.String() == at.GetIp() })
	})
	switch {
	case !c.isMine(i):
		want = others
	case c.cfg.SeveralServers:
		want = append(others, ours...)
		slices.SortFunc(want, func(a, b *networkingv1.IngressLoadBalancerIngress) int {
			return strings.Compare(a.GetIp(), b.GetIp())
		})
	default:
		want = ours
	}
	same := func(a, b *networkingv1.IngressLoadBalancerIngress) bool { return proto.Equal(a, b) }
	return want, !slices.EqualFunc(has, want, same)
}

// addresses are where the listeners are reached, each with its ports.
func (c *Controller) addresses() []*networkingv1.IngressLoadBalancerIngress {
	var ports []*networkingv1.IngressPortStatus
	for _, l := range []net.Listener{c.cfg.Entry.HTTP, c.cfg.Entry.HTTPS} {
		if l == nil {
			continue
		}
		if at, err := netip.ParseAddrPort(l.Addr().String()); err == nil {
			ports = append(ports, &networkingv1.IngressPortStatus{Port: int32(at.Port()), Protocol: "TCP"})
		}
	}
	var out []*networkingv1.IngressLoadBalancerIngress
	for _, a := range c.cfg.Entry.Addresses {
		out = append(out, &networkingv1.IngressLoadBalancerIngress{Ip: a.String(), Ports: ports})
	}
	return out
}
