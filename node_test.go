package monoplane_test

import (
	"fmt"
	"strings"
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

// What happens on a simulated node is reported by that node. spec: OBJ-13
func TestSimulatedNodesReportAsThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 3
		c := start(t, monoplane.Config{Nodes: nodes})
		api := c.Client()
		for i := range nodes {
			p := newPod(fmt.Sprint("p", i))
			p.Spec.NodeName = fmt.Sprint("node-", i)
			create(t, api, p)
		}
		time.Sleep(time.Second)
		list, err := api.Events.List(t.Context(), &metav1.ListRequest{Namespace: "default"})
		if err != nil {
			t.Fatal(err)
		}
		started := 0
		for _, e := range list.GetItems() {
			if e.GetReason() != "Started" {
				continue
			}
			started++
			want := strings.Replace(e.GetInvolvedObject().GetName(), "p", "node-", 1)
			if e.GetReportingInstance() != want || e.GetSource().GetHost() != "" && e.GetSource().GetHost() != want {
				t.Errorf("%s is reported by %q, host %q", e.GetMetadata().GetName(), e.GetReportingInstance(),
					e.GetSource().GetHost())
			}
		}
		if started != nodes {
			t.Errorf("%d pods are reported as started", started)
		}
	})
}

// Nodes have the labels of the configuration, and their zones. spec: NODE-6
func TestNodeLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, monoplane.Config{
			Nodes: 5, Zones: 3, NodeLabels: map[string]string{"disk": "ssd", "topology.kubernetes.io/region": "r"},
		})
		for i, zone := range []string{"zone-1", "zone-2", "zone-3", "zone-1", "zone-2"} {
			labels := getNode(t, c.Client(), fmt.Sprint("node-", i)).GetMetadata().GetLabels()
			for k, want := range map[string]string{
				"disk": "ssd", "topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": zone,
				"kubernetes.io/os":       "linux",
				"kubernetes.io/hostname": fmt.Sprint("node-", i),
			} {
				if labels[k] != want {
					t.Errorf("node %d: label %s is %q, want %q", i, k, labels[k], want)
				}
			}
		}
	})
	for _, tc := range []struct {
		cfg  monoplane.Config
		want string
	}{
		{monoplane.Config{NodeLabels: map[string]string{"a b": "c"}}, `node label "a b": the key is not valid`},
		{monoplane.Config{NodeLabels: map[string]string{"": "c"}}, `node label "": the key is not valid`},
		{monoplane.Config{NodeLabels: map[string]string{"a": "b c"}}, `node label "a": the value "b c" is not valid`},
		{monoplane.Config{NodeLabels: map[string]string{"kubernetes.io/a": "b"}},
			`node label "kubernetes.io/a": in the namespaces`},
		{monoplane.Config{NodeLabels: map[string]string{"x.k8s.io/a": "b"}}, `node label "x.k8s.io/a": in the namespaces`},
		{monoplane.Config{NodeLabels: map[string]string{"node-role.kubernetes.io/a": "b"}}, `in the namespaces`},
		{monoplane.Config{NodeLabels: map[string]string{"node-restriction.kubernetes.io/a": "b"}}, `in the namespaces`},
		{monoplane.Config{Nodes: 3, Zones: -1}, "the number of zones is -1"},
		{monoplane.Config{Nodes: 3, Zones: 4}, "4 zones need as many nodes at least; there are 3"},
		{monoplane.Config{Zones: 1, Runtime: monoplane.HostRuntime()}, "1 zones need the fake runtime"},
		{monoplane.Config{Nodes: 3, Zones: 3, NodeLabels: map[string]string{"topology.kubernetes.io/zone": "a"}},
			"either zones or"},
	} {
		tc.cfg.DataDir = t.TempDir()
		if tc.cfg.Runtime == nil {
			tc.cfg.Runtime = monoplane.FakeRuntime()
		}
		c, err := monoplane.Start(t.Context(), tc.cfg)
		if err == nil {
			err = c.Stop(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, %d zones: %v, want %s", tc.cfg.NodeLabels, tc.cfg.Zones, err, tc.want)
		}
	}
}

// When Nodes are deleted, their live agents register again at once, each has a Lease of its new Node, and the pods go
// on. The namespace of the Leases is not needed for that, and nobody changes what the store holds in place, which the
// end of the cluster finds out. spec: NODE-1, NODE-7
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

// Nodes are registered with the taints of the configuration, which keep pods away. spec: NODE-6, SCHED-4
func TestNodeTaints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, monoplane.Config{Nodes: 2, NodeTaints: []*corev1.Taint{
			{Key: "dedicated", Value: "db", Effect: "NoSchedule"},
		}})
		for i := range 2 {
			list := getNode(t, c.Client(), fmt.Sprint("node-", i)).GetSpec().GetTaints()
			if len(list) != 1 || list[0].GetKey() != "dedicated" || list[0].GetValue() != "db" ||
				list[0].GetEffect() != "NoSchedule" {
				t.Errorf("node %d has the taints %v", i, list)
			}
		}
	})
	_, err := monoplane.Start(t.Context(), monoplane.Config{DataDir: t.TempDir(), Runtime: monoplane.FakeRuntime(),
		NodeTaints: []*corev1.Taint{{Key: "a", Effect: "Never"}}})
	if err == nil || !strings.Contains(err.Error(), `taint a=:Never: the effect "Never" is not NoSchedule`) {
		t.Errorf("%v", err)
	}
}
