package monoplane_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"monoplane.dev"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
)

func getNode(t *testing.T, c *client.Client, name string) *corev1.Node {
	t.Helper()
	n, err := c.Nodes.Get(t.Context(), &metav1.GetRequest{Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// When Nodes are deleted, their live agents register again at once, each has a Lease of its new Node, and the pods go
// on. The namespace of the Leases is not needed for that, and nobody changes what the store holds in place, which the end
// of the cluster finds out. spec: NODE-1, NODE-7
func TestDeletedNodesAreRegisteredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 3
		c := start(t, monoplane.Config{Nodes: nodes})
		api := c.Client()
		for i := range nodes {
			p := newPod(fmt.Sprint("p", i))
			p.Spec.NodeName = fmt.Sprint("node-", i)
			create(t, api, p)
			if err := waitFor(t.Context(), api, fmt.Sprint("p", i), running); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(11 * time.Second) // all have beaten
		for range 3 {
			before := map[string]string{}
			for i := range nodes {
				name := fmt.Sprint("node-", i)
				before[name] = getNode(t, api, name).GetMetadata().GetUid()
				if _, err := api.Nodes.Delete(t.Context(), &metav1.DeleteRequest{Name: name}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(500 * time.Millisecond)
			for name, uid := range before {
				now := getNode(t, api, name).GetMetadata().GetUid()
				if now == "" || now == uid {
					t.Errorf("half a second later node %s is %q, was %q", name, now, uid)
				}
				l, err := api.Leases.Get(t.Context(), &metav1.GetRequest{Namespace: "kube-node-lease", Name: name})
				if err != nil {
					t.Fatal(err)
				}
				if owner := l.GetMetadata().GetOwnerReferences()[0].GetUid(); owner != now {
					t.Errorf("the lease of %s belongs to %q, want %q", name, owner, now)
				}
			}
		}
		time.Sleep(2 * time.Minute) // PodGC has looked at them
		for i := range nodes {
			p, err := api.Pods.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: fmt.Sprint("p", i)})
			if err != nil {
				t.Fatal(err)
			}
			if !running(p) || p.GetStatus().GetContainerStatuses()[0].GetRestartCount() != 0 {
				t.Errorf("pod %d: %v", i, p.GetStatus())
			}
		}
	})
}
