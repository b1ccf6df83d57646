package proxy

import (
	"context"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
)

// dnsService is the Service by whose address pods find the DNS.
var dnsService = cache.Key{Namespace: "kube-system", Name: "kube-dns"}

// remakeEvery is the time between two looks at whether the Service is there.
const remakeEvery = 10 * time.Second

// keepDNSService makes the Service kube-dns while it is missing. One that is there is left as it is: somebody may
// serve names by pods of their own.
func (p *Proxy) keepDNSService(ctx context.Context) error {
	t := time.NewTicker(remakeEvery)
	defer t.Stop()
	if err := p.services.WaitForSync(ctx); err != nil {
		return err
	}
	for {
		if _, ok := p.services.Get(dnsService.Namespace, dnsService.Name); !ok {
			_, err := p.cfg.Client.Services.Create(ctx, &corev1rpc.CreateServiceRequest{
				Namespace: dnsService.Namespace, Object: newDNSService(p.cfg.DNSService.String()),
			})
			if err != nil && !apierrors.Is(err, apierrors.AlreadyExists) && ctx.Err() == nil {
				p.cfg.Logger.Error("The Service of the cluster's DNS could not be made; it is tried again", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

func newDNSService(ip string) *corev1.Service {
	return &corev1.Service{
		Metadata: &metav1.ObjectMeta{Name: dnsService.Name, Labels: map[string]string{
			"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true",
		}},
		Spec: &corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []*corev1.ServicePort{
			{Name: "dns", Protocol: "UDP", Port: 53}, {Name: "dns-tcp", Protocol: "TCP", Port: 53},
		}},
	}
}
