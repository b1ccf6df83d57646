package servicecidr_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	metav1 "monoplane.dev/api/meta/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
	networkingv1rpc "monoplane.dev/api/networking/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/controllers/servicecidr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server with the controller.
type world struct {
	*testing.T
	server *apitest.Server
}

// with runs the controller of a server that was started with these ranges, while f runs.
func (w *world) with(f func(), ranges ...string) {
	w.Helper()
	var list []netip.Prefix
	for _, r := range ranges {
		list = append(list, netip.MustParsePrefix(r))
	}
	c, err := servicecidr.New(servicecidr.Config{Client: w.server.Controller("service-cidrs"), Ranges: list})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	time.Sleep(time.Second)
	if err := c.Ready(); err != nil {
		w.Error(err)
	}
	f()
	cancel()
	<-done
}

// wants compares all ranges, a line each: the name, the networks, and the conditions with their reasons.
func (w *world) wants(when string, want ...string) {
	w.Helper()
	list, err := w.server.Admin().ServiceCIDRs.List(w.Context(), &metav1.ListRequest{})
	if err != nil {
		w.Fatal(err)
	}
	var got []string
	for _, o := range list.Items {
		line := o.Metadata.Name + " " + strings.Join(o.Spec.Cidrs, ",")
		for _, c := range o.GetStatus().GetConditions() {
			line += fmt.Sprintf(" %s=%s %s", c.Type, c.Status, c.Reason)
		}
		if len(o.Metadata.Finalizers) != 1 || o.Metadata.Finalizers[0] != "networking.k8s.io/service-cidr-finalizer" {
			w.Errorf("%s: %s has finalizers %q", when, o.Metadata.Name, o.Metadata.Finalizers)
		}
		got = append(got, strings.TrimSpace(line))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		w.Errorf("%s: %q, want %q", when, got, want)
	}
}

func (w *world) make(name string, cidrs ...string) {
	w.Helper()
	_, err := w.server.Admin().ServiceCIDRs.Create(w.Context(), &networkingv1rpc.CreateServiceCIDRRequest{
		Object: &networkingv1.ServiceCIDR{
			Metadata: &metav1.ObjectMeta{Name: name}, Spec: &networkingv1.ServiceCIDRSpec{Cidrs: cidrs},
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	time.Sleep(time.Second)
}

// address makes an address of a Service, as what gives addresses does, or a user's own.
func (w *world) address(ip string, labels map[string]string) {
	w.Helper()
	_, err := w.server.Admin().IPAddresses.Create(w.Context(), &networkingv1rpc.CreateIPAddressRequest{
		Object: &networkingv1.IPAddress{
			Metadata: &metav1.ObjectMeta{Name: ip, Labels: labels},
			Spec: &networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
				Resource: "services", Namespace: "default", Name: "web",
			}},
		},
	})
	if err != nil {
		w.Fatal(err)
	}
}

// remove deletes a range, and waits for as long as one that nobody uses may take.
func (w *world) remove(name string) {
	w.Helper()
	if _, err := w.server.Admin().ServiceCIDRs.Delete(w.Context(), &metav1.DeleteRequest{Name: name}); err != nil {
		w.Fatal(err)
	}
	time.Sleep(time.Minute)
}

var ofServices = map[string]string{"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}

// There is always a range that is the server's, which may become one of two families, and otherwise stays as it is.
func TestDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t, apitest.Start(t)}
		failures := 3
		w.server.React(func(_ context.Context, method string, _ any) error {
			if failures > 0 && strings.Contains(method, "ServiceCIDRs/") && !strings.Contains(method, "/Watch") {
				failures--
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		w.with(func() {
			time.Sleep(time.Minute)
			w.wants("at the first start", "kubernetes 10.96.0.0/16 Ready=True")
			w.remove("kubernetes")
			w.wants("deleted", "kubernetes 10.96.0.0/16 Ready=True")
			w.make("more", "192.0.2.0/24")
			w.wants("a user's", "kubernetes 10.96.0.0/16 Ready=True", "more 192.0.2.0/24")
		}, "10.96.0.0/16")
		w.with(func() {
			w.wants("another family", "kubernetes 10.96.0.0/16,fd00::/108 Ready=True", "more 192.0.2.0/24")
		}, "10.96.0.0/16", "fd00::/108")
		w.with(func() {
			time.Sleep(time.Minute)
			w.wants("another range", "kubernetes 10.96.0.0/16,fd00::/108 Ready=True", "more 192.0.2.0/24")
			list, err := w.server.Admin().Events.List(w.Context(), &metav1.ListRequest{})
			if err != nil || len(list.Items) != 1 || list.Items[0].Reason != "KubernetesDefaultServiceCIDRInconsistent" {
				w.Errorf("told: %v, %v", list.GetItems(), err)
			}
		}, "10.97.0.0/16")
	})
}

// A range goes once no Service has an address that is in no other one which stays.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t, apitest.Start(t)}
		w.with(func() {
			const first, waits = "kubernetes 10.96.0.0/16 Ready=True", "Ready=False Terminating"
			w.make("a", "192.0.2.0/24", "2001:db8::/64")
			w.address("192.0.2.7", nil)
			w.remove("a")
			w.wants("a user's address", first)

			w.make("a", "192.0.2.0/24", "2001:db8::/64")
			w.address("2001:db8::7", ofServices)
			w.remove("a")
			w.wants("an address in use", "a 192.0.2.0/24,2001:db8::/64 "+waits, first)
			w.make("b", "2001:db8::/32")
			w.wants("now in another", "b 2001:db8::/32", first)

			w.make("a", "2001:db8::/64")
			if _, err := w.server.Admin().ServiceCIDRs.Delete(w.Context(), &metav1.DeleteRequest{Name: "a"}); err != nil {
				w.Fatal(err)
			}
			w.remove("b")
			w.wants("both are deleted", "a 2001:db8::/64 "+waits, "b 2001:db8::/32 "+waits, first)
			_, err := w.server.Admin().IPAddresses.Delete(w.Context(), &metav1.DeleteRequest{Name: "2001:db8::7"})
			if err != nil {
				w.Fatal(err)
			}
			time.Sleep(time.Second)
			w.wants("the address is gone", first)
		}, "10.96.0.0/16")
	})
}
