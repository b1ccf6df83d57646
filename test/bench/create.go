package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
)

// creates are the sides of the create rows: a cluster and its two limits, which store values as long as the
// cluster's and answer with as many bytes.
type creates struct {
	cluster *cluster
	raw     *rawEtcd
	top     *bare
}

// benchCreate measures creates over gRPC in-process and over REST.
func benchCreate(ctx context.Context, e *env) (err error) {
	c, err := startCluster(ctx, e, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	if err := fill(ctx, c, "sample", 1); err != nil {
		return err
	}
	answer, err := fetch(ctx, c.http, c.podsURL()+"/"+podName("sample", 0))
	if err != nil {
		return err
	}
	value, err := storedValue(answer)
	if err != nil {
		return err
	}
	raw, err := newRawEtcd(ctx, e, value)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.etcd.Close()) }()
	top, err := newBare(e, ceiling(raw, answer))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, top.close()) }()
	alone, err := newStoreAlone(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, alone.Close()) }()
	sample, err := decodePod(answer)
	if err != nil {
		return err
	}

	if err := limit(ctx, c.Client()); err != nil {
		return err
	}
	b := &creates{c, raw, top}
	size := fmt.Sprintf("%.1f KB", float64(len(answer))/1e3)
	for _, clients := range []int{1, 64} {
		of, n, grpcShare, restShare, quotaShare := "1 client", e.size(300), 0.8, 0.75, 0.4
		if clients > 1 {
			of, n, grpcShare, restShare, quotaShare = fmt.Sprint(clients, " clients"), e.size(1500), 0, 0.6, 0.6
		}
		atMost := func(int) (float64, error) { return raw.rate(ctx, clients, n) }
		p, err := paired(15, alone.create(ctx, sample, clients, n), atMost)
		if err != nil {
			return err
		}
		e.atLeast(fmt.Sprintf("create, %s, the store alone", of), p, "raw", 0)
		if p, err = paired(15, b.grpc(ctx, c.Client(), "default", "in", clients, n), atMost); err != nil {
			return err
		}
		e.atLeast(fmt.Sprintf("create, %s, gRPC in-process (%s)", of, size), p, "raw", grpcShare)
		if p, err = paired(15, b.grpc(ctx, c.grpc, "default", "tls", clients, n), atMost); err != nil {
			return err
		}
		e.atLeast(fmt.Sprintf("create, %s, gRPC over TLS (%s)", of, size), p, "raw", 0)
		p, err = paired(15, b.rest(ctx, c.http, c.podsURL(), clients, n), b.rest(ctx, top.client, top.url, clients, n))
		if err != nil {
			return err
		}
		e.atLeast(fmt.Sprintf("create, %s, REST (%s)", of, size), p, "ceiling", restShare)
		p, err = paired(15, b.grpc(ctx, c.Client(), limited, "quota", clients, n),
			b.grpc(ctx, c.Client(), "default", "free", clients, n))
		if err != nil {
			return err
		}
		e.atLeast(fmt.Sprintf("create, %s, in a namespace with a quota", of), p, "no quota", quotaShare)
	}
	return nil
}

// limited is a namespace with a quota that has room for all.
const limited = "limited"

func limit(ctx context.Context, c *client.Client) error {
	if _, err := c.Namespaces.Create(ctx, &corev1rpc.CreateNamespaceRequest{
		Object: &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: limited}},
	}); err != nil {
		return err
	}
	// A controller makes the account, too.
	if _, err := c.ServiceAccounts.Create(ctx, &corev1rpc.CreateServiceAccountRequest{
		Object: &corev1.ServiceAccount{Metadata: &metav1.ObjectMeta{Namespace: limited, Name: "default"}},
	}); err != nil && !apierrors.Is(err, apierrors.AlreadyExists) {
		return err
	}
	_, err := c.ResourceQuotas.Create(ctx, &corev1rpc.CreateResourceQuotaRequest{Object: &corev1.ResourceQuota{
		Metadata: &metav1.ObjectMeta{Namespace: limited, Name: "much"},
		Spec: &corev1.ResourceQuotaSpec{Hard: map[string]*metav1.Quantity{
			"pods": {String_: "1000000"}, "count/pods": {String_: "1000000"},
		}},
	}})
	return err
}

// grpc creates n pods in a round.
func (b *creates) grpc(
	ctx context.Context, by *client.Client, namespace, name string, clients, n int,
) func(int) (float64, error) {
	return func(round int) (float64, error) {
		prefix := fmt.Sprintf("g-%s-%d-%d", name, clients, round)
		return drive(ctx, clients, n, func(ctx context.Context, _, i int) error {
			_, err := by.Pods.Create(ctx, &corev1rpc.CreatePodRequest{
				Namespace: namespace, Object: in(namespace, pod(podName(prefix, i), "none")),
			})
			return err
		})
	}
}

// in puts a pod into a namespace.
func in(namespace string, p *corev1.Pod) *corev1.Pod {
	p.Metadata.Namespace = namespace
	return p
}

// rest sends n pods in a round.
func (b *creates) rest(ctx context.Context, h *http.Client, url string, clients, n int) func(int) (float64, error) {
	return func(round int) (float64, error) {
		prefix := fmt.Sprintf("r-%d-%d", clients, round)
		return drive(ctx, clients, n, func(ctx context.Context, _, i int) error {
			_, err := call(ctx, h, http.MethodPost, url, podJSON(podName(prefix, i), "none"), http.StatusCreated)
			return err
		})
	}
}

// storedValue returns the protobuf of the pod in an answer, which is what the store keeps.
func storedValue(answer []byte) ([]byte, error) {
	p, err := decodePod(answer)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(p)
}
