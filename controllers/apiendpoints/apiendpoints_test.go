package apiendpoints_test

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/apiendpoints"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/object"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var this = &metav1.GetRequest{Namespace: "default", Name: "kubernetes"}

// run runs the controller of a server until stop is called.
func run(t *testing.T, c *client.Client, address string, shared bool) (stop func()) {
	t.Helper()
	s := controller.Server{ClusterIP: netip.MustParseAddr("10.96.0.1"), Shared: shared}
	if address != "" {
		s.Reached = func() netip.AddrPort { return netip.MustParseAddrPort(address) }
	}
	return start(t, c, s)
}

func start(t *testing.T, c *client.Client, s controller.Server) (stop func()) {
	t.Helper()
	ctl, err := apiendpoints.New(apiendpoints.Config{Client: c, Server: s})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := ctl.Run(ctx); ctx.Err() == nil {
			t.Error(err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// listed returns what Endpoints and EndpointSlices have, which must be the same.
func listed(t *testing.T, c *client.Client) string {
	t.Helper()
	e, err := c.Endpoints.Get(t.Context(), this)
	if err != nil {
		return err.Error()
	}
	var endpoints, inSlices []string
	for _, s := range e.Subsets {
		for _, a := range s.Addresses {
			endpoints = append(endpoints, netip.AddrPortFrom(netip.MustParseAddr(a.Ip), uint16(s.Ports[0].Port)).String())
		}
	}
	all, err := c.EndpointSlices.List(t.Context(), &metav1.ListRequest{
		Namespace: "default", LabelSelector: "kubernetes.io/service-name=kubernetes",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all.Items {
		for _, e := range s.Endpoints {
			inSlices = append(inSlices,
				netip.AddrPortFrom(netip.MustParseAddr(e.Addresses[0]), uint16(s.Ports[0].GetPort())).String())
		}
	}
	if a, b := strings.Join(endpoints, " "), strings.Join(inSlices, " "); a != b {
		t.Errorf("Endpoints have %q, EndpointSlices %q", a, b)
	}
	return strings.Join(endpoints, " ")
}

func TestServerIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apitest.Start(t)
		c := server.Admin()
		stop := run(t, server.Controller("apiendpoints"), "127.0.0.1:6443", false)
		time.Sleep(time.Second)
		s, err := c.Services.Get(t.Context(), this)
		if err != nil || s.Spec.ClusterIP != "10.96.0.1" || len(s.Spec.Ports) != 1 || s.Spec.Ports[0].Port != 443 ||
			s.Spec.Ports[0].TargetPort.IntVal != 6443 || s.Metadata.Labels["component"] != "apiserver" {
			t.Fatalf("%v, %v", s, err)
		}
		if got := listed(t, c); got != "127.0.0.1:6443" {
			t.Errorf("endpoints: %s", got)
		}
		before, err := server.Store.Revision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if now, err := server.Store.Revision(t.Context()); err != nil || now != before {
			t.Errorf("something was written in an hour: %v, %v, %v", before, now, err)
		}

		// What somebody has spoilt is mended.
		spoilt := object.Clone(s)
		spoilt.Spec.Ports[0].TargetPort.IntVal = 1
		if _, err := c.Services.Update(t.Context(), &corev1rpc.UpdateServiceRequest{Object: spoilt}); err != nil {
			t.Fatal(err)
		}
		_, err = c.Endpoints.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "default", Name: "kubernetes"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if s, err = c.Services.Get(t.Context(), this); err != nil || s.Spec.Ports[0].TargetPort.IntVal != 6443 {
			t.Errorf("mended: %v, %v", s, err)
		}
		stop()
		stop = run(t, server.Controller("apiendpoints"), "192.0.2.1:7443", false)
		defer stop()
		time.Sleep(time.Minute)
		if got := listed(t, c); got != "192.0.2.1:7443" {
			t.Errorf("after a move: %s", got)
		}
		if s, err = c.Services.Get(t.Context(), this); err != nil || s.Spec.Ports[0].TargetPort.IntVal != 7443 {
			t.Errorf("after a move: %v, %v", s, err)
		}
	})
}

// Of several servers all are listed that live: one that dies is left out once its Lease has ended, one that stops at
// the next look.
func TestServersAreListedWhileTheyLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apitest.Start(t)
		c := server.Admin()
		stopFirst := run(t, server.Controller("apiendpoints"), "192.0.2.1:6443", true)
		defer stopFirst()
		stopSecond := run(t, server.Controller("apiendpoints"), "192.0.2.2:6443", true)
		time.Sleep(10 * time.Second)
		if got := listed(t, c); got != "192.0.2.1:6443 192.0.2.2:6443" {
			t.Errorf("two live: %s", got)
		}
		stopSecond()
		time.Sleep(6 * time.Second)
		if got := listed(t, c); got != "192.0.2.1:6443" {
			t.Errorf("one has stopped: %s", got)
		}
		// One that dies leaves its Lease behind.
		dying, die := context.WithCancel(t.Context())
		gate := server.Controller("apiendpoints")
		third, err := apiendpoints.New(apiendpoints.Config{Client: gate, Server: controller.Server{
			Reached:   func() netip.AddrPort { return netip.MustParseAddrPort("192.0.2.3:7443") },
			ClusterIP: netip.MustParseAddr("10.96.0.1"), Shared: true,
		}})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = third.Run(dying) }()
		time.Sleep(10 * time.Second)
		if got := listed(t, c); got != "192.0.2.1:6443 192.0.2.3:7443" {
			t.Errorf("another lives: %s", got)
		}
		leases, err := c.Leases.List(t.Context(), &metav1.ListRequest{Namespace: "kube-system"})
		if err != nil || len(leases.Items) != 2 {
			t.Errorf("leases: %v, %v", leases, err)
		}
		server.React(func(_ context.Context, method string, _ any) error {
			if strings.Contains(method, "Leases/Delete") {
				return apierrors.New(apierrors.ServiceUnavailable, "dead")
			}
			return nil
		})
		die()
		time.Sleep(5 * time.Second)
		server.React(nil)
		if got := listed(t, c); got != "192.0.2.1:6443 192.0.2.3:7443" {
			t.Errorf("at once after its death: %s", got)
		}
		time.Sleep(20 * time.Second)
		if got := listed(t, c); got != "192.0.2.1:6443" {
			t.Errorf("after its lease: %s", got)
		}
		time.Sleep(2 * time.Minute)
		leases, err = c.Leases.List(t.Context(), &metav1.ListRequest{Namespace: "kube-system"})
		if err != nil || len(leases.Items) != 1 {
			t.Errorf("leases: %v, %v", leases, err)
		}
	})
}

// Nothing is listed while it is not known where pods reach the server. When that changes, so does what is listed, and
// of where it was no Lease is left.
func TestServerIsReachedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apitest.Start(t)
		c := server.Admin()
		var at atomic.Pointer[netip.AddrPort]
		at.Store(&netip.AddrPort{})
		defer start(t, server.Controller("apiendpoints"), controller.Server{
			Reached: func() netip.AddrPort { return *at.Load() }, ClusterIP: netip.MustParseAddr("10.96.0.1"), Shared: true,
		})()
		time.Sleep(time.Minute)
		if _, err := c.Endpoints.Get(t.Context(), this); !apierrors.Is(err, apierrors.NotFound) {
			t.Errorf("while it is not known: %v", err)
		}
		for _, now := range []string{"10.244.0.1:6443", "10.244.0.1:7443"} {
			next := netip.MustParseAddrPort(now)
			at.Store(&next)
			time.Sleep(12 * time.Second) // two looks: the first may still see the Lease that has just gone
			if got := listed(t, c); got != now {
				t.Errorf("%s is listed for %s", got, now)
			}
			leases, err := c.Leases.List(t.Context(), &metav1.ListRequest{Namespace: "kube-system"})
			if err != nil || len(leases.Items) != 1 || leases.Items[0].Spec.GetHolderIdentity() != now {
				t.Errorf("leases: %v, %v", leases, err)
			}
		}
	})
}

func TestServerWithoutNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apitest.Start(t)
		defer run(t, server.Controller("apiendpoints"), "", false)()
		time.Sleep(time.Hour)
		if s, err := server.Admin().Services.Get(t.Context(), this); !apierrors.Is(err, apierrors.NotFound) {
			t.Errorf("%v, %v", s, err)
		}
	})
}
