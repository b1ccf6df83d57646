package enforcer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
	networkingv1rpc "monoplane.dev/api/networking/v1/rpc"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/nodeagent/network/enforcer"
	"monoplane.dev/nodeagent/network/policies"
	"monoplane.dev/nodeagent/network/test/netnstest"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }

const (
	nodeIP   = "10.9.0.1"
	serverIP = "10.1.0.1"
	clientIP = "10.1.0.2"
	port     = "8080"
)

// world is an API server, and a node namespace with two pods: a server, which listens, and a client.
type world struct {
	t                    *testing.T
	server               *apitest.Server
	api                  *client.Client
	node, served, client *netnstest.NS
	enforcer             *enforcer.Enforcer
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, server: apitest.Start(t), node: netnstest.New(t), served: netnstest.New(t), client: netnstest.New(t),
		enforcer: enforcer.New(nil),
	}
	w.server.Namespaces(t, "shop")
	w.api = w.server.Admin()
	w.node.Up("lo", nodeIP+"/32")
	w.node.Sysctl("net/ipv4/ip_forward", "1")
	w.link("server", serverIP, w.served)
	w.link("client", clientIP, w.client)
	var l net.Listener
	w.served.Do(func() (err error) {
		l, err = new(net.ListenConfig).Listen(t.Context(), "tcp", serverIP+":"+port)
		return err
	})
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	return w
}

func (w *world) link(name, ip string, ns *netnstest.NS) {
	netnstest.Link(w.node, ns, name, "eth0", []string{"169.254.1.1/32"}, []string{ip + "/32"})
	w.node.Route(name, ip+"/32", "", "")
	ns.Route("eth0", "0.0.0.0/0", "169.254.1.1", "")
}

// run starts the enforcer, which ends with the test.
func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.enforcer.Run(ctx, w.server.Controller("nodenetwork"), "here") }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.t.Errorf("Run ended with %v", err)
		}
	})
}

func (w *world) use(there ...enforcer.Sandbox) {
	w.t.Helper()
	if err := w.enforcer.Await(w.t.Context(), ""); err != nil {
		w.t.Fatal(err)
	}
	err := w.enforcer.Use(w.t.Context(), policies.Config{NFTables: w.node.NFTables, Netfilter: w.node.Netfilter},
		[]netip.Addr{netip.MustParseAddr(nodeIP)}, there)
	if err != nil {
		w.t.Fatal(err)
	}
}

// admit does what is done before a pod is connected.
func (w *world) admit(s enforcer.Sandbox) {
	w.t.Helper()
	if err := w.enforcer.Await(w.t.Context(), s.Namespace); err != nil {
		w.t.Fatal(err)
	}
	if err := w.enforcer.Admit(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
}

func sandbox(name, ip string, labels map[string]string) enforcer.Sandbox {
	return enforcer.Sandbox{
		ID: "sandbox-of-" + name, Namespace: "shop", Name: name, UID: "uid-" + name, Labels: labels,
		Addrs: []netip.Addr{netip.MustParseAddr(ip)},
	}
}

// connects tells whether the client reaches the server.
func (w *world) connects(ns *netnstest.NS) bool {
	w.t.Helper()
	c, err := ns.Dial("tcp", "", serverIP+":"+port)
	if err == nil {
		_ = c.Close()
	} else if !errors.Is(err, syscall.ECONNREFUSED) {
		w.t.Fatal(err)
	}
	return err == nil
}

// becomes waits until the client reaches the server, or does not.
func (w *world) becomes(want bool) {
	w.t.Helper()
	for end := time.Now().Add(30 * time.Second); w.connects(w.client) != want; {
		if time.Now().After(end) {
			w.t.Fatalf("after 30 s the client reaches the server: %v", !want)
		}
	}
}

func (w *world) policy(name string, spec *networkingv1.NetworkPolicySpec) {
	w.t.Helper()
	_, err := w.api.NetworkPolicies.Create(w.t.Context(), &networkingv1rpc.CreateNetworkPolicyRequest{
		Namespace: "shop",
		Object:    &networkingv1.NetworkPolicy{Metadata: &metav1.ObjectMeta{Name: name, Namespace: "shop"}, Spec: spec},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func selector(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// from allows what comes from pods with a label.
func from(key, value string) *networkingv1.NetworkPolicySpec {
	return &networkingv1.NetworkPolicySpec{Ingress: []*networkingv1.NetworkPolicyIngressRule{{
		From: []*networkingv1.NetworkPolicyPeer{{PodSelector: selector(key, value)}},
	}}}
}

// A policy that was made before a pod is in force before the pod is connected, however late the watch is; changes of
// policies, of labels and of pods count soon.
func TestPodsAreIsolatedFromTheBeginning(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.use()
	for range 20 {
		w.policy("deny", &networkingv1.NetworkPolicySpec{})
		w.admit(sandbox("server", serverIP, map[string]string{"app": "server"}))
		if w.connects(w.client) {
			t.Fatal("a pod is open although a policy was there before it")
		}
		if !w.connects(w.node) {
			t.Error("the node does not reach its pod")
		}
		w.enforcer.Forget("sandbox-of-server")
		_, err := w.api.NetworkPolicies.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "shop", Name: "deny"})
		if err != nil {
			t.Fatal(err)
		}
		w.becomes(true)
	}
}

// What changes in the API counts, with nothing else being done.
func TestChangesCount(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.use()
	w.admit(sandbox("server", serverIP, nil))
	w.admit(sandbox("client", clientIP, map[string]string{"app": "other"}))
	w.policy("deny", &networkingv1.NetworkPolicySpec{})
	w.becomes(false)
	w.policy("allow", from("app", "client"))
	// The API comes to know the pod; its labels count from now on.
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "client", Namespace: "shop", Labels: map[string]string{"app": "client"}},
		Spec:     &corev1.PodSpec{NodeName: "here", Containers: []*corev1.Container{{Name: "c", Image: "host"}}},
	}
	made, err := w.api.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Namespace: "shop", Object: p})
	if err != nil {
		t.Fatal(err)
	}
	if w.connects(w.client) {
		t.Error("a pod is taken for another of its name")
	}
	s := sandbox("client", clientIP, map[string]string{"app": "other"})
	s.UID = made.GetMetadata().GetUid()
	w.admit(s)
	w.becomes(true)
	w.enforcer.Forget(s.ID)
	w.becomes(false)
}

// Pods on other nodes are peers by their labels while they run there; those with the network of their node are not,
// since they have its address.
func TestPeersElsewhere(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.use()
	w.policy("allow", from("app", "client"))
	w.admit(sandbox("server", serverIP, nil))
	create := func(name, ip, app, phase string, hostNetwork bool) {
		t.Helper()
		p, err := w.api.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Namespace: "shop", Object: &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
			Spec: &corev1.PodSpec{NodeName: "there", HostNetwork: hostNetwork,
				Containers: []*corev1.Container{{Name: "c", Image: "host"}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		p = object.Clone(p)
		p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = phase, ip, []*corev1.PodIP{{Ip: ip}}
		_, err = w.server.Agent("there").Pods.UpdateStatus(t.Context(),
			&corev1rpc.UpdatePodRequest{Namespace: "shop", Name: name, Object: p})
		if err != nil {
			t.Fatal(err)
		}
	}
	through := func(ip string) bool {
		c, err := w.client.Dial("tcp", ip, serverIP+":"+port)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	for i, c := range []struct {
		app, phase  string
		hostNetwork bool
		through     bool
	}{
		{"client", "Running", false, true}, {"other", "Running", false, false}, {"client", "Running", true, false},
		{"client", "Succeeded", false, false},
	} {
		ip, last := fmt.Sprint("10.1.0.", 10+i), fmt.Sprint("10.1.0.", 20+i)
		for _, a := range []string{ip, last} {
			w.client.Up("eth0", a+"/32")
			w.node.Route("client", a+"/32", "", "")
		}
		create(fmt.Sprint("pod-", i), ip, c.app, c.phase, c.hostNetwork)
		// One that comes later shows that the pod is known.
		create(fmt.Sprint("last-", i), last, "client", "Running", false)
		for end := time.Now().Add(30 * time.Second); !through(last); {
			if time.Now().After(end) {
				t.Fatal("after 30 s a peer elsewhere is not let through")
			}
		}
		if got := through(ip); got != c.through {
			t.Errorf("%+v: it is let through: %v", c, got)
		}
	}
}

// After a restart what is connected stays isolated while the new process learns of it, and a new namespace has all
// rules before anything is connected to it.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.use()
	w.policy("deny", &networkingv1.NetworkPolicySpec{})
	s := sandbox("server", serverIP, nil)
	w.admit(s)
	w.enforcer = enforcer.New(nil)
	if err := w.enforcer.Use(t.Context(), policies.Config{NFTables: w.node.NFTables}, nil, nil); !errors.Is(err,
		enforcer.ErrUnknown) {
		t.Errorf("rules are made of nothing: %v", err)
	}
	w.run()
	w.use(s)
	if w.connects(w.client) {
		t.Error("a pod is open after a restart")
	}
	w.node.Rules(func(conn *nftables.Conn) error {
		conn.FlushRuleset()
		return nil
	})
	w.use(s) // as in a new namespace
	if w.connects(w.client) {
		t.Error("a pod is open in a new namespace")
	}
}

// Before anything is known nobody is admitted.
func TestNobodyIsAdmittedBeforePoliciesAreKnown(t *testing.T) {
	e := enforcer.New(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Await(ctx, "shop"); err == nil {
		t.Error("policies are known without anybody who could know them")
	}
	if err := e.Admit(t.Context(), sandbox("server", serverIP, nil)); !errors.Is(err, enforcer.ErrUnknown) {
		t.Errorf("admitted: %v", err)
	}
}
