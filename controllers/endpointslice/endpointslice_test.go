package endpointslice_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	discoveryv1rpc "monoplane.dev/api/discovery/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/endpointslice"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the controller on a server, in virtual time. The test plays the nodes.
type world struct {
	*testing.T
	server *apitest.Server
	c      *client.Client
	// stop ends the controller.
	stop func()
	// writes counts what was asked of slices, refuse fails it.
	writes atomic.Int64
	refuse atomic.Bool
}

func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.Start(t), stop: func() {}}
		w.c = w.server.Admin()
		w.server.Namespaces(t, "ns")
		w.server.React(func(_ context.Context, method string, _ any) error {
			if !strings.Contains(method, "EndpointSlices/") || strings.HasSuffix(method, "/Watch") ||
				strings.HasSuffix(method, "/List") {
				return nil
			}
			w.writes.Add(1)
			if w.refuse.Load() {
				return apierrors.New(apierrors.Forbidden, "no")
			}
			return nil
		})
		for i, zone := range []string{"a", "b"} {
			name := fmt.Sprint("n", i+1)
			_, err := w.server.Agent(name).Nodes.Create(t.Context(), &corev1rpc.CreateNodeRequest{Object: &corev1.Node{
				Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{"topology.kubernetes.io/zone": zone}},
			}})
			w.must(err)
		}
		w.stop = w.start()
		f(w)
		w.stop()
	})
}

func (w *world) start() (stop func()) {
	w.Helper()
	shared := controller.NewShared(w.server.Controller(controller.SharedRole().Name), nil)
	c, err := endpointslice.New(endpointslice.Config{Client: w.server.Controller("endpointslice"), Shared: shared})
	w.must(err)
	if c.Ready() == nil {
		w.Error("ready before it ran")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- controllertest.Run(ctx, shared, c) }()
	synctest.Wait()
	w.must(c.Ready())
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.Errorf("Run ended with %v", err)
		}
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.stop()
		w.Fatal(err)
	}
}

// service makes a service that selects pods with label app=web.
func (w *world) service(change func(*corev1.Service)) *corev1.Service {
	w.Helper()
	s := &corev1.Service{
		Metadata: &metav1.ObjectMeta{Name: "web", Namespace: "ns"},
		Spec: &corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, ClusterIP: "None", IpFamilies: []string{"IPv4"},
			Ports: []*corev1.ServicePort{{Port: 80, Protocol: "TCP",
				TargetPort: &metav1.IntOrString{Type: 1, StrVal: "http"}}},
		},
	}
	if change != nil {
		change(s)
	}
	out, err := w.c.Services.Create(w.Context(), &corev1rpc.CreateServiceRequest{Namespace: "ns", Object: s})
	w.must(err)
	return out
}

// changeService changes the service.
func (w *world) changeService(change func(*corev1.Service)) {
	w.Helper()
	s, err := w.c.Services.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "web"})
	w.must(err)
	s = object.Clone(s)
	change(s)
	_, err = w.c.Services.Update(w.Context(), &corev1rpc.UpdateServiceRequest{Namespace: "ns", Object: s})
	w.must(err)
}

// pod makes a pod that runs on a node and is ready, at 10.0.X.Y of its number.
func (w *world) pod(number int, change ...func(*corev1.Pod)) {
	w.Helper()
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{
			Name: fmt.Sprint("p", number), Namespace: "ns", Labels: map[string]string{"app": "web"},
		},
		Spec: &corev1.PodSpec{
			NodeName: fmt.Sprint("n", number%2+1),
			Containers: []*corev1.Container{{Name: "c", Image: "host",
				Ports: []*corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}},
		},
	}
	for _, f := range change {
		f(p)
	}
	_, err := w.c.Pods.Create(w.Context(), &corev1rpc.CreatePodRequest{Namespace: "ns", Object: p})
	w.must(err)
	w.status(number, func(s *corev1.PodStatus) {
		ip := fmt.Sprintf("10.0.%d.%d", number/250, number%250+1)
		s.Phase, s.PodIP, s.PodIPs = "Running", ip, []*corev1.PodIP{{Ip: ip}}
		ready(true)(s)
	})
}

func (w *world) status(number int, change func(*corev1.PodStatus)) {
	w.Helper()
	p, err := w.c.Pods.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: fmt.Sprint("p", number)})
	w.must(err)
	p = object.Clone(p)
	change(p.Status)
	_, err = w.server.Agent(p.GetSpec().GetNodeName()).Pods.UpdateStatus(w.Context(),
		&corev1rpc.UpdatePodRequest{Object: p})
	w.must(err)
}

func ready(is bool) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		status := "False"
		if is {
			status = "True"
		}
		s.Conditions = slices.DeleteFunc(s.Conditions, func(c *corev1.PodCondition) bool { return c.GetType() == "Ready" })
		s.Conditions = append(s.Conditions, &corev1.PodCondition{
			Type: "Ready", Status: status, LastTransitionTime: value.Time(time.Now()),
		})
	}
}

// remove deletes a pod; it is gone when its agent says so, with a grace of 0.
func (w *world) remove(c *client.Client, number int, grace int64) {
	w.Helper()
	name := fmt.Sprint("p", number)
	p, err := w.c.Pods.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: name})
	w.must(err)
	uid := p.GetMetadata().GetUid()
	_, err = c.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: name,
		Options: &metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{Uid: &uid}},
	})
	w.must(err)
}

// list waits until nothing happens any more, and returns the slices.
func (w *world) list() []*discoveryv1.EndpointSlice {
	w.Helper()
	synctest.Wait()
	out, err := w.c.EndpointSlices.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	return out.GetItems()
}

// show lists the endpoints of all slices: the pod, its address and port, and r, s and t for ready, serving and
// terminating.
func (w *world) show() string {
	w.Helper()
	var lines []string
	for _, s := range w.list() {
		for _, e := range s.GetEndpoints() {
			line := e.GetTargetRef().GetName() + " " + strings.Join(e.GetAddresses(), ",")
			for _, p := range s.GetPorts() {
				line += fmt.Sprint(":", p.GetPort())
			}
			c, letters := e.GetConditions(), ""
			for i, is := range []bool{c.GetReady(), c.GetServing(), c.GetTerminating()} {
				if is {
					letters += "rst"[i : i+1]
				}
			}
			lines = append(lines, line+" "+letters)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

func (w *world) expect(want string) {
	w.Helper()
	if got := w.show(); got != want {
		w.Errorf("endpoints %q, not %q", got, want)
	}
}

// spec: WORK-4
func TestPodsBecomeEndpoints(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service(nil)
		all := w.list()
		if len(all) != 1 || len(all[0].GetEndpoints()) != 0 {
			t.Fatalf("a service without pods has slices %v", all)
		}
		m := all[0].GetMetadata()
		for key, value := range map[string]string{"kubernetes.io/service-name": "web", "service.kubernetes.io/headless": "",
			"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"} {
			if has, ok := m.GetLabels()[key]; !ok || has != value {
				t.Errorf("label %s is %q", key, has)
			}
		}
		if o := m.GetOwnerReferences(); len(o) != 1 || o[0].GetKind() != "Service" || !o[0].GetController() {
			t.Errorf("owners %v", o)
		}
		w.pod(1)
		w.expect("p1 10.0.0.2:8080 rs")
		if e := w.list()[0].GetEndpoints()[0]; e.GetNodeName() != "n2" || e.GetZone() != "b" {
			t.Errorf("where: %v", e)
		}
		w.status(1, ready(false))
		w.expect("p1 10.0.0.2:8080 ")
		w.pod(2)
		w.expect("p1 10.0.0.2:8080 ; p2 10.0.0.3:8080 rs")
		w.changeService(func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true })
		w.expect("p1 10.0.0.2:8080 r; p2 10.0.0.3:8080 rs")
		w.changeService(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "db"} })
		w.expect("")
		w.changeService(func(s *corev1.Service) {
			s.Spec.Selector, s.Spec.PublishNotReadyAddresses = map[string]string{"app": "web"}, false
			s.Spec.Ports[0].TargetPort = &metav1.IntOrString{IntVal: 9}
		})
		w.expect("p1 10.0.0.2:9 ; p2 10.0.0.3:9 rs")
		w.status(2, func(s *corev1.PodStatus) { s.Phase = "Failed"; ready(false)(s) })
		w.expect("p1 10.0.0.2:9 ")
		if all := w.list(); len(all) != 1 {
			t.Errorf("%d slices", len(all))
		}
	})
}

// spec: WORK-5
func TestTerminatingPodsStay(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service(nil)
		w.pod(1)
		w.expect("p1 10.0.0.2:8080 rs")
		w.remove(w.c, 1, 30)
		w.expect("p1 10.0.0.2:8080 st")
		w.status(1, ready(false))
		w.expect("p1 10.0.0.2:8080 t")
		w.status(1, ready(true))
		w.expect("p1 10.0.0.2:8080 st")
		w.status(1, func(s *corev1.PodStatus) { s.Phase = "Succeeded"; ready(false)(s) })
		w.expect("")
		w.remove(w.server.Agent("n2"), 1, 0)
		w.expect("")
	})
}

// A node that is lost takes its pods out of traffic, and is where its endpoints are: both follow it. spec: WORK-4
func TestEndpointsFollowNodes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service(nil)
		w.pod(1)
		w.status(1, ready(false)) // as the controller of lost nodes has it
		w.expect("p1 10.0.0.2:8080 ")
		w.status(1, ready(true))
		n, err := w.c.Nodes.Get(w.Context(), &metav1.GetRequest{Name: "n2"})
		w.must(err)
		n = object.Clone(n)
		n.Metadata.Labels["topology.kubernetes.io/zone"] = "c"
		_, err = w.c.Nodes.Update(w.Context(), &corev1rpc.UpdateNodeRequest{Object: n})
		w.must(err)
		if e := w.list()[0].GetEndpoints()[0]; e.GetZone() != "c" {
			t.Errorf("the zone is %q after the node moved", e.GetZone())
		}
	})
}

func TestHostnamesAndHints(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service(func(s *corev1.Service) { s.Spec.TrafficDistribution = proto.String("PreferSameNode") })
		w.pod(1, func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "db", "web" })
		e := w.list()[0].GetEndpoints()[0]
		if e.GetHostname() != "db" {
			t.Errorf("hostname %q", e.GetHostname())
		}
		h := e.GetHints()
		if len(h.GetForNodes()) != 1 || h.GetForNodes()[0].GetName() != "n2" || h.GetForZones()[0].GetName() != "b" {
			t.Errorf("hints %v", h)
		}
		w.changeService(func(s *corev1.Service) { s.Spec.TrafficDistribution = nil })
		if e := w.list()[0].GetEndpoints()[0]; e.GetHints() != nil {
			t.Errorf("hints stay: %v", e)
		}
		w.changeService(func(s *corev1.Service) {
			s.Metadata.Annotations = map[string]string{"service.kubernetes.io/topology-mode": "Auto"}
		})
		w.event("TopologyAwareHintsDisabled")
	})
}

// event waits for an event of the service.
func (w *world) event(reason string) {
	w.Helper()
	synctest.Wait()
	time.Sleep(time.Minute)
	events, err := w.c.Events.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	if !slices.ContainsFunc(events.GetItems(), func(e *corev1.Event) bool {
		return e.GetReason() == reason && e.GetInvolvedObject().GetName() == "web"
	}) {
		w.Errorf("no event %s among %v", reason, events.GetItems())
	}
}

// A thousand endpoints are in ten slices, and what changes of one of them changes one slice.
func TestAThousandEndpoints(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 1000 {
			w.pod(i)
		}
		w.service(nil)
		all := w.list()
		if len(all) != 10 {
			t.Fatalf("%d slices", len(all))
		}
		for _, s := range all {
			if len(s.GetEndpoints()) != 100 {
				t.Errorf("a slice of %d", len(s.GetEndpoints()))
			}
		}
		before := w.writes.Load()
		w.status(7, ready(false))
		w.list()
		if n := w.writes.Load() - before; n != 1 {
			t.Errorf("%d writes for one pod", n)
		}
	})
}

// Pods that turn ready and back without end cost one write for each time, at most, and what changes about pods besides
// costs none.
func TestFlappingPodsCostBoundedWrites(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service(nil)
		for i := range 10 {
			w.pod(i)
		}
		w.list()
		before := w.writes.Load()
		const flaps = 200
		for i := range flaps {
			w.status(i%10, ready(i/10%2 == 1))
		}
		w.list()
		if n := w.writes.Load() - before; n > flaps {
			t.Errorf("%d writes for %d changes", n, flaps)
		}
		before = w.writes.Load()
		for i := range 10 {
			w.status(i, func(s *corev1.PodStatus) { s.Message = "nothing of importance" })
		}
		w.list()
		if n := w.writes.Load() - before; n != 0 {
			t.Errorf("%d writes for nothing", n)
		}
	})
}

// Slices that somebody else spoils or removes are as they should be again, and a controller that starts anew writes
// nothing.
func TestSlicesAreRepaired(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service(nil)
		w.pod(1)
		s := object.Clone(w.list()[0])
		s.Endpoints = nil
		_, err := w.c.EndpointSlices.Update(w.Context(),
			&discoveryv1rpc.UpdateEndpointSliceRequest{Namespace: "ns", Object: s})
		w.must(err)
		w.expect("p1 10.0.0.2:8080 rs")
		_, err = w.c.EndpointSlices.Delete(w.Context(),
			&metav1.DeleteRequest{Namespace: "ns", Name: s.GetMetadata().GetName()})
		w.must(err)
		w.expect("p1 10.0.0.2:8080 rs")
		w.stop()
		before := w.writes.Load()
		w.stop = w.start()
		if w.expect("p1 10.0.0.2:8080 rs"); w.writes.Load() != before {
			t.Errorf("%d writes after a start", w.writes.Load()-before)
		}
	})
}

func TestServicesWithoutSelectorAreLeftAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service(func(s *corev1.Service) { s.Spec.Selector = nil })
		w.pod(1)
		if all := w.list(); len(all) != 0 {
			t.Errorf("slices %v", all)
		}
	})
}

// What is refused is said, and tried again.
func TestFailuresAreToldAndTriedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.refuse.Store(true)
		w.service(nil)
		w.pod(1)
		w.event("FailedToUpdateEndpointSlices")
		w.refuse.Store(false)
		time.Sleep(time.Minute)
		w.expect("p1 10.0.0.2:8080 rs")
	})
}
