//go:build rootonly

package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
	networkingv1rpc "monoplane.dev/api/networking/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/test/containerd"
)

// serviceName is the Service of all pods of a run, and what they have as the label "app".
const serviceName = "web"

// peerNames are the pods that come and go; those that begin with "forced" are deleted by force.
var peerNames = []string{"polite-a", "polite-b", "polite-c", "polite-d", "forced-a", "forced-b"}

// load begins to create and delete pods, and a NetworkPolicy that lets everything through. The returned function waits
// until that has ended with ctx.
func (n *network) load(ctx context.Context, c *client.Client, rng *rand.Rand) (wait func()) {
	var wg sync.WaitGroup
	again := func(step func(ctx context.Context) error) func() {
		return func() {
			for ctx.Err() == nil && !n.current().ended() {
				bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
				if err := step(bounded); err != nil {
					pause(ctx, 10*time.Millisecond)
				}
				cancel()
			}
		}
	}
	for i, name := range peerNames {
		own := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		wg.Go(again(func(ctx context.Context) error { return n.step(ctx, c, own, name) }))
	}
	wg.Go(again(func(ctx context.Context) error { return n.isolate(ctx, c) }))
	return wg.Wait
}

// step creates the pod of a name, or deletes it.
func (n *network) step(ctx context.Context, c *client.Client, rng *rand.Rand, name string) error {
	p, err := c.Pods.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		_, err = n.create(ctx, c, name)
		return err
	}
	if err != nil {
		return err
	}
	if p.GetMetadata().GetDeletionTimestamp() != nil || rng.IntN(6) > 0 {
		pause(ctx, time.Duration(rng.IntN(200))*time.Millisecond) // let it live for a while
		return nil
	}
	return n.remove(ctx, c, p)
}

func (n *network) create(ctx context.Context, c *client.Client, name string) (*corev1.Pod, error) {
	seconds := int64(2)
	p, err := c.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default", Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": serviceName}},
		Spec: &corev1.PodSpec{
			TerminationGracePeriodSeconds: &seconds,
			Containers: []*corev1.Container{{
				Name: "main", Image: containerd.BoxImage, Command: []string{filepath.Join(n.share, "peer")},
				Env: []*corev1.EnvVar{
					{Name: envDir, Value: n.dir}, {Name: envShare, Value: n.share},
					{Name: envUID, ValueFrom: &corev1.EnvVarSource{
						FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"},
					}},
				},
				VolumeMounts: []*corev1.VolumeMount{{Name: "share", MountPath: n.share}},
			}},
			Volumes: []*corev1.Volume{{Name: "share", VolumeSource: &corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: n.share},
			}}},
		},
	}})
	if err == nil {
		n.history.created(p)
	}
	return p, err
}

// serve makes the Service of the pods, and returns it.
func (n *network) serve(ctx context.Context, c *client.Client) (*corev1.Service, error) {
	s, err := c.Services.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: serviceName})
	if !apierrors.Is(err, apierrors.NotFound) {
		return s, err
	}
	kind := "NodePort"
	return c.Services.Create(ctx, &corev1rpc.CreateServiceRequest{Namespace: "default", Object: &corev1.Service{
		Metadata: &metav1.ObjectMeta{Name: serviceName, Namespace: "default"},
		Spec: &corev1.ServiceSpec{
			Type: kind, Selector: map[string]string{"app": serviceName},
			Ports: []*corev1.ServicePort{{Port: 80, TargetPort: &metav1.IntOrString{IntVal: peerPort}}},
		},
	}})
}

// isolate makes or deletes a NetworkPolicy that lets everybody reach the pods.
func (n *network) isolate(ctx context.Context, c *client.Client) error {
	defer pause(ctx, 200*time.Millisecond)
	const name = "everybody"
	_, err := c.NetworkPolicies.Delete(ctx, &metav1.DeleteRequest{Namespace: "default", Name: name})
	if !apierrors.Is(err, apierrors.NotFound) {
		return err
	}
	var from []*networkingv1.NetworkPolicyPeer
	for _, cidr := range []string{"0.0.0.0/0", "::/0"} {
		from = append(from, &networkingv1.NetworkPolicyPeer{IpBlock: &networkingv1.IPBlock{Cidr: cidr}})
	}
	_, err = c.NetworkPolicies.Create(ctx, &networkingv1rpc.CreateNetworkPolicyRequest{
		Namespace: "default", Object: &networkingv1.NetworkPolicy{
			Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
			Spec: &networkingv1.NetworkPolicySpec{
				PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": serviceName}},
				Ingress:     []*networkingv1.NetworkPolicyIngressRule{{From: from}},
			},
		},
	})
	if err != nil {
		return fmt.Errorf("the NetworkPolicy: %w", err)
	}
	return nil
}
