package endpointslicemirroring_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/endpoints"
	"monoplane.dev/controllers/endpointslicemirroring"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the controllers of Endpoints and of their copies on a server, in virtual time.
type world struct {
	*testing.T
	server *apitest.Server
	c      *client.Client
	// stop ends the controllers.
	stop func()
}

func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.Start(t), stop: func() {}}
		w.c = w.server.Admin()
		w.server.Namespaces(t, "ns")
		shared := controller.NewShared(w.server.Controller(controller.SharedRole().Name), nil)
		e, err := endpoints.New(endpoints.Config{Client: w.server.Controller("endpoint"), Shared: shared})
		w.must(err)
		m, err := endpointslicemirroring.New(endpointslicemirroring.Config{
			Client: w.server.Controller("endpointslicemirroring"), Shared: shared,
		})
		w.must(err)
		if e.Ready() == nil || m.Ready() == nil {
			t.Error("ready before they ran")
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- controllertest.Run(ctx, shared, e, m) }()
		w.stop = func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Run ended with %v", err)
			}
		}
		synctest.Wait()
		w.must(errors.Join(e.Ready(), m.Ready()))
		f(w)
		w.stop()
	})
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.stop()
		w.Fatal(err)
	}
}

func (w *world) service(selector map[string]string) {
	w.Helper()
	_, err := w.c.Services.Create(w.Context(), &corev1rpc.CreateServiceRequest{Namespace: "ns", Object: &corev1.Service{
		Metadata: &metav1.ObjectMeta{Name: "web", Namespace: "ns", Labels: map[string]string{"a": "b"}},
		Spec: &corev1.ServiceSpec{
			Selector: selector, ClusterIP: "None", IpFamilies: []string{"IPv4"},
			Ports: []*corev1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP",
				TargetPort: &metav1.IntOrString{IntVal: 80}}},
		},
	}})
	w.must(err)
}

// pod makes a pod with an address that is ready.
func (w *world) pod(number int) {
	w.Helper()
	name := fmt.Sprint("p", number)
	p, err := w.c.Pods.Create(w.Context(), &corev1rpc.CreatePodRequest{Namespace: "ns", Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{"app": "web"}},
		Spec:     &corev1.PodSpec{NodeName: "n", Containers: []*corev1.Container{{Name: "c", Image: "host"}}},
	}})
	w.must(err)
	p = object.Clone(p)
	ip := fmt.Sprintf("10.0.%d.%d", number/200, number%200+1)
	p.Status = &corev1.PodStatus{Phase: "Running", PodIP: ip, PodIPs: []*corev1.PodIP{{Ip: ip}},
		Conditions: []*corev1.PodCondition{{Type: "Ready", Status: "True"}}}
	_, err = w.server.Agent("n").Pods.UpdateStatus(w.Context(), &corev1rpc.UpdatePodRequest{Object: p})
	w.must(err)
}

// endpoints waits until nothing happens any more, and returns the Endpoints; nil for none.
func (w *world) endpoints() *corev1.Endpoints {
	w.Helper()
	synctest.Wait()
	e, err := w.c.Endpoints.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "web"})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil
	}
	w.must(err)
	return e
}

// slices lists the endpoints of all slices, with their addresses and ports.
func (w *world) slices() string {
	w.Helper()
	synctest.Wait()
	out, err := w.c.EndpointSlices.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	var lines []string
	for _, s := range out.GetItems() {
		for _, e := range s.GetEndpoints() {
			line := s.GetAddressType() + " " + strings.Join(e.GetAddresses(), ",")
			for _, p := range s.GetPorts() {
				line += fmt.Sprint(":", p.GetPort())
			}
			lines = append(lines, fmt.Sprint(line, " ", e.GetConditions().GetReady()))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

func (w *world) delete(call func(context.Context, *metav1.DeleteRequest) error) {
	w.Helper()
	w.must(call(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: "web"}))
}

// spec: WORK-4
func TestEndpointsOfPods(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service(map[string]string{"app": "web"})
		if e := w.endpoints(); e == nil || len(e.GetSubsets()) != 0 {
			t.Fatalf("without pods: %v", e)
		}
		w.pod(1)
		w.pod(2)
		e := w.endpoints()
		s := e.GetSubsets()
		if len(s) != 1 || len(s[0].GetAddresses()) != 2 || len(s[0].GetPorts()) != 1 || s[0].GetPorts()[0].GetPort() != 80 {
			t.Errorf("subsets %v", s)
		}
		for key, value := range map[string]string{"a": "b", "service.kubernetes.io/headless": "",
			"endpoints.kubernetes.io/managed-by": "endpoint-controller"} {
			if has, ok := e.GetMetadata().GetLabels()[key]; !ok || has != value {
				t.Errorf("label %s is %q", key, has)
			}
		}
		if got := w.slices(); got != "" {
			t.Errorf("Endpoints of a service with a selector are copied: %s", got)
		}
		// A pod that terminates is no endpoint here, unlike in slices. spec: WORK-5
		_, err := w.c.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: "p1"})
		w.must(err)
		s = w.endpoints().GetSubsets()
		if len(s) != 1 || len(s[0].GetAddresses()) != 1 || len(s[0].GetNotReadyAddresses()) != 0 {
			t.Errorf("subsets with a pod that terminates: %v", s)
		}
		w.delete(func(ctx context.Context, r *metav1.DeleteRequest) error {
			_, err := w.c.Services.Delete(ctx, r)
			return err
		})
		if e := w.endpoints(); e != nil {
			t.Errorf("without a service: %v", e)
		}
	})
}

func TestEndpointsOverCapacity(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 1005 {
			w.pod(i)
		}
		w.service(map[string]string{"app": "web"})
		e := w.endpoints()
		if n := len(e.GetSubsets()[0].GetAddresses()); n != 1000 {
			t.Errorf("%d addresses", n)
		}
		if got := e.GetMetadata().GetAnnotations()["endpoints.kubernetes.io/over-capacity"]; got != "truncated" {
			t.Errorf("over-capacity is %q", got)
		}
	})
}

func TestEndpointsAreCopiedToSlices(t *testing.T) {
	inWorld(t, func(w *world) {
		written := &corev1.Endpoints{
			Metadata: &metav1.ObjectMeta{Name: "web", Namespace: "ns", Annotations: map[string]string{
				"x": "y", "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
			Subsets: []*corev1.EndpointSubset{{
				Addresses:         []*corev1.EndpointAddress{{Ip: "10.1.1.1", NodeName: proto.String("n")}, {Ip: "fd00::1"}},
				NotReadyAddresses: []*corev1.EndpointAddress{{Ip: "10.1.1.2"}},
				Ports:             []*corev1.EndpointPort{{Port: 5432}},
			}},
		}
		e, err := w.c.Endpoints.Create(w.Context(), &corev1rpc.CreateEndpointsRequest{Namespace: "ns", Object: written})
		w.must(err)
		if got := w.slices(); got != "" {
			t.Errorf("copied without a service: %s", got)
		}
		w.service(nil)
		const all = "IPv4 10.1.1.1:5432 true; IPv4 10.1.1.2:5432 false; IPv6 fd00::1:5432 true"
		if got := w.slices(); got != all {
			t.Errorf("slices %q, not %q", got, all)
		}
		list, err := w.c.EndpointSlices.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
		w.must(err)
		for _, s := range list.GetItems() {
			m := s.GetMetadata()
			if m.GetLabels()["endpointslice.kubernetes.io/managed-by"] != "endpointslicemirroring-controller.k8s.io" ||
				m.GetLabels()["kubernetes.io/service-name"] != "web" || m.GetAnnotations()["x"] != "y" ||
				len(m.GetAnnotations()) != 1 || m.GetOwnerReferences()[0].GetKind() != "Endpoints" {
				t.Errorf("metadata %v", m)
			}
		}
		e = object.Clone(e)
		e.Subsets[0].Addresses = e.Subsets[0].Addresses[:1]
		e.Subsets[0].NotReadyAddresses = nil
		e, err = w.c.Endpoints.Update(w.Context(), &corev1rpc.UpdateEndpointsRequest{Namespace: "ns", Object: e})
		w.must(err)
		if got := w.slices(); got != "IPv4 10.1.1.1:5432 true" {
			t.Errorf("slices after a change: %q", got)
		}
		e = object.Clone(e)
		e.Metadata.Labels = map[string]string{"endpointslice.kubernetes.io/skip-mirror": "true"}
		_, err = w.c.Endpoints.Update(w.Context(), &corev1rpc.UpdateEndpointsRequest{Namespace: "ns", Object: e})
		w.must(err)
		if got := w.slices(); got != "" {
			t.Errorf("copied although it is not wanted: %q", got)
		}
	})
}

// A thousand addresses of a subset are copied, and an event says how many are not.
func TestCopiesHaveALimit(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service(nil)
		s := &corev1.EndpointSubset{Ports: []*corev1.EndpointPort{{Port: 1}}}
		for i := range 1003 {
			s.Addresses = append(s.Addresses, &corev1.EndpointAddress{Ip: fmt.Sprintf("10.1.%d.%d", i/200, i%200+1)})
		}
		_, err := w.c.Endpoints.Create(w.Context(), &corev1rpc.CreateEndpointsRequest{
			Namespace: "ns", Object: &corev1.Endpoints{
				Metadata: &metav1.ObjectMeta{Name: "web", Namespace: "ns"}, Subsets: []*corev1.EndpointSubset{s},
			},
		})
		w.must(err)
		if n := strings.Count(w.slices(), "IPv4"); n != 1000 {
			t.Errorf("%d endpoints", n)
		}
		time.Sleep(time.Minute)
		events, err := w.c.Events.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
		w.must(err)
		if !slices.ContainsFunc(events.GetItems(), func(e *corev1.Event) bool {
			return e.GetReason() == "TooManyAddressesToMirror" && strings.HasSuffix(e.GetMessage(), " 3 addresses were skipped")
		}) {
			t.Errorf("events %v", events.GetItems())
		}
	})
}
