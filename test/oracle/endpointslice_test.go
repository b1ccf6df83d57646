package oracle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	k8sfake "k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/topologycache"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"

	corev1 "monoplane.dev/api/core/v1"
	od "monoplane.dev/api/discovery/v1"
	ourslices "monoplane.dev/controllers/endpointslice/slices"
	"monoplane.dev/rules/endpoint"
)

// serviceWorld is a service with pods on nodes, which change from round to round.
type serviceWorld struct {
	r       *rand.Rand
	service *v1.Service
	pods    []*v1.Pod
	nodes   []*v1.Node
	made    int
}

func newServiceWorld(r *rand.Rand) *serviceWorld {
	w := &serviceWorld{r: r, service: &v1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "u1", Labels: map[string]string{"a": "b"}},
		Spec: v1.ServiceSpec{
			ClusterIP: pick(r, []string{"10.0.0.1", "None", ""}), Selector: map[string]string{"app": "web"},
			Ports: []v1.ServicePort{
				{Name: "http", Port: 80, Protocol: "TCP", TargetPort: intstr.FromString("http")},
				{Name: "dns", Port: 53, Protocol: "UDP", TargetPort: intstr.FromInt32(5353), AppProtocol: ptr("dns")},
			}[:r.IntN(3)],
			IPFamilies: pick(r, [][]v1.IPFamily{nil, {"IPv4"}, {"IPv6"}, {"IPv6", "IPv4"}}),
		},
	}}
	for i := range 2 + r.IntN(4) {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), Labels: map[string]string{}}}
		n.Status.Conditions = []v1.NodeCondition{{Type: "Ready", Status: "True"}}
		n.Status.Allocatable = amounts("cpu", pick(r, []string{"1", "2", "4", "500m"}))
		if r.IntN(12) > 0 {
			n.Labels["topology.kubernetes.io/zone"] = fmt.Sprint("z", r.IntN(3))
		}
		if r.IntN(8) == 0 {
			n.Labels["node-role.kubernetes.io/control-plane"] = ""
		}
		if r.IntN(8) == 0 {
			n.Status.Conditions[0].Status = "False"
		}
		w.nodes = append(w.nodes, n)
	}
	return w
}

func (w *serviceWorld) pod() *v1.Pod {
	r := w.r
	w.made++
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprint("p", w.made), Namespace: "ns", UID: types.UID(fmt.Sprint("u", w.made)),
		Labels: map[string]string{"app": "web"},
	}}
	p.Spec.NodeName = pick(r, w.nodes).Name
	if r.IntN(40) == 0 {
		p.Spec.NodeName = "unknown"
	}
	if r.IntN(3) == 0 {
		p.Spec.Hostname, p.Spec.Subdomain = fmt.Sprint("h", w.made), pick(r, []string{"web", "other"})
	}
	c := v1.Container{Name: "c", Ports: []v1.ContainerPort{{Name: "http", Protocol: "TCP",
		ContainerPort: int32(8080 + r.IntN(2))}, {Name: "http", Protocol: "UDP", ContainerPort: 1}}}
	switch r.IntN(6) {
	case 0:
		p.Spec.Containers = []v1.Container{{Name: "c"}}
		p.Spec.InitContainers = []v1.Container{c}
		if r.IntN(2) == 0 {
			p.Spec.InitContainers[0].RestartPolicy = ptr(v1.ContainerRestartPolicyAlways)
		}
	default:
		p.Spec.Containers = []v1.Container{c}
	}
	p.Status.Phase = "Running"
	ip := fmt.Sprintf("10.1.%d.%d", w.made/250, w.made%250+1)
	p.Status.PodIP = ip
	p.Status.PodIPs = []v1.PodIP{{IP: ip}}
	if r.IntN(2) == 0 {
		p.Status.PodIPs = append(p.Status.PodIPs, v1.PodIP{IP: fmt.Sprintf("fd00:0::%x", w.made)})
	}
	if r.IntN(15) == 0 {
		p.Status.PodIP, p.Status.PodIPs = "", nil
	}
	p.Status.Conditions = []v1.PodCondition{{Type: "Ready", Status: pick(r,
		[]v1.ConditionStatus{"True", "True", "True", "False"})}}
	return p
}

// step changes something.
func (w *serviceWorld) step() {
	r := w.r
	switch r.IntN(12) {
	case 0, 1:
		for range 1 + r.IntN(12) {
			w.pods = append(w.pods, w.pod())
		}
	case 2:
		n := r.IntN(len(w.pods) + 1)
		r.Shuffle(len(w.pods), func(i, j int) { w.pods[i], w.pods[j] = w.pods[j], w.pods[i] })
		w.pods = w.pods[min(n, 8):]
	case 3:
		w.service.Labels = map[string]string{"a": pick(r, []string{"b", "c"}), "service.kubernetes.io/headless": "x"}
	case 4:
		w.service.Spec.PublishNotReadyAddresses = r.IntN(2) == 0
	case 5:
		w.service.Spec.TrafficDistribution = pick(r,
			[]*string{nil, ptr("PreferClose"), ptr("PreferSameZone"), ptr("PreferSameNode"), ptr("Else")})
	case 6:
		w.service.Annotations = pick(r, []map[string]string{nil, {"service.kubernetes.io/topology-mode": "Auto"},
			{"service.kubernetes.io/topology-aware-hints": "auto", "service.kubernetes.io/topology-mode": "Disabled"}})
	case 7:
		if len(w.service.Spec.Ports) > 0 {
			w.service.Spec.Ports[0].TargetPort = pick(r, []intstr.IntOrString{intstr.FromInt32(80), intstr.FromString("http")})
		}
	default:
		for range r.IntN(6) {
			if len(w.pods) == 0 {
				return
			}
			p := pick(r, w.pods)
			switch r.IntN(4) {
			case 0:
				p.DeletionTimestamp = &metav1.Time{Time: time.Unix(5, 0)}
			case 1:
				p.Status.Phase = pick(r, []v1.PodPhase{"Running", "Failed", "Succeeded"})
			default:
				p.Status.Conditions[0].Status = pick(r, []v1.ConditionStatus{"True", "False", "Unknown"})
			}
		}
	}
}

// theirs lets Kubernetes' reconciler work on existing slices, and returns what there is then, what it wrote, and its
// event.
func (w *serviceWorld) theirs(
	t *testing.T, existing []*discoveryv1.EndpointSlice, most int, round int,
) (after []*discoveryv1.EndpointSlice, writes map[string]int, event string, failed bool) {
	t.Helper()
	objects := make([]runtime.Object, 0, len(existing))
	for _, s := range existing {
		objects = append(objects, s.DeepCopy())
	}
	client := k8sfake.NewSimpleClientset(objects...) //nolint:staticcheck // the other one is a hundred times slower
	names := 0
	client.PrependReactor("create", "endpointslices", func(a k8stesting.Action) (bool, runtime.Object, error) {
		s := a.(k8stesting.CreateAction).GetObject().(*discoveryv1.EndpointSlice)
		names++
		s.Name = fmt.Sprintf("%s%d-%d", s.GenerateName, round, names)
		return false, nil, nil
	})
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, n := range w.nodes {
		if err := indexer.Add(n); err != nil {
			t.Fatal(err)
		}
	}
	topology := topologycache.NewTopologyCache()
	topology.SetNodes(klog.Logger{}, w.nodes)
	recorder := record.NewFakeRecorder(10)
	rec := endpointslice.NewReconciler(client, corelisters.NewNodeLister(indexer), int32(most),
		endpointsliceutil.NewEndpointSliceTracker(), topology, recorder, ourslices.Manager,
		endpointslice.WithPreferSameTrafficDistributionEnabled(true))
	pods := make([]*v1.Pod, 0, len(w.pods))
	for _, p := range w.pods {
		pods = append(pods, p.DeepCopy())
	}
	copies := make([]*discoveryv1.EndpointSlice, 0, len(existing))
	for _, s := range existing {
		copies = append(copies, s.DeepCopy())
	}
	err := rec.Reconcile(klog.Logger{}, w.service.DeepCopy(), pods, copies, time.Time{})
	writes = map[string]int{}
	for _, a := range client.Actions() {
		writes[a.GetVerb()]++
	}
	list, listErr := client.DiscoveryV1().EndpointSlices("ns").List(t.Context(), metav1.ListOptions{})
	if listErr != nil {
		t.Fatal(listErr)
	}
	for i := range list.Items {
		list.Items[i].TypeMeta = metav1.TypeMeta{} // as in what informers hold
		after = append(after, &list.Items[i])
	}
	close(recorder.Events)
	for e := range recorder.Events {
		event = e
	}
	return after, writes, event, err != nil
}

// ourPlan lets Monoplane decide on the same.
func (w *serviceWorld) ourPlan(
	t *testing.T, existing []*discoveryv1.EndpointSlice, most int,
) (after []*od.EndpointSlice, plan ourslices.Plan) {
	t.Helper()
	in := ourslices.Input{Max: most, Service: convert(t, w.service, &corev1.Service{})}
	nodes := map[string]*corev1.Node{}
	var all []*corev1.Node
	for _, n := range w.nodes {
		o := convert(t, n, &corev1.Node{})
		nodes[n.Name] = o
		all = append(all, o)
	}
	in.Shares = ourslices.Shares(all)
	in.Node = func(name string) *corev1.Node { return nodes[name] }
	for _, p := range w.pods {
		in.Pods = append(in.Pods, convert(t, p, &corev1.Pod{}))
	}
	left := map[string]*od.EndpointSlice{}
	for _, s := range existing {
		o := convert(t, s, &od.EndpointSlice{})
		in.Existing = append(in.Existing, o)
		left[s.Name] = o
	}
	plan = ourslices.Decide(in)
	for _, s := range plan.Delete {
		delete(left, s.GetMetadata().GetName())
	}
	for _, s := range plan.Update {
		left[s.GetMetadata().GetName()] = s
	}
	return append(slices.Collect(maps.Values(left)), plan.Create...), plan
}

// picture is what consumers see of slices: the endpoints by ports, and how full each slice is.
func picture(all []*od.EndpointSlice, hints bool) string {
	endpoints, sizes := []string{}, []string{}
	for _, s := range all {
		var ports []string
		for _, p := range s.GetPorts() {
			ports = append(ports, fmt.Sprint(p.GetName(), "/", p.GetProtocol(), "/", p.GetPort(), "/", p.GetAppProtocol()))
		}
		slices.Sort(ports)
		m := s.GetMetadata()
		group := fmt.Sprint(s.GetAddressType(), ports, labels.Set(m.GetLabels()), m.GetOwnerReferences()[0].GetUid())
		sizes = append(sizes, fmt.Sprint("a slice of ", len(s.GetEndpoints()), " ", group))
		for _, e := range s.GetEndpoints() {
			c := e.GetConditions()
			text := fmt.Sprint(group, " ", e.GetAddresses(), e.GetHostname(), e.GetNodeName(), e.GetZone(),
				e.GetTargetRef().GetName(), e.GetTargetRef().GetUid(), c.GetReady(), c.GetServing(), c.GetTerminating())
			if hints {
				for _, z := range e.GetHints().GetForZones() {
					text += " for zone " + z.GetName()
				}
				for _, n := range e.GetHints().GetForNodes() {
					text += " for node " + n.GetName()
				}
			}
			endpoints = append(endpoints, text)
		}
	}
	slices.Sort(endpoints)
	slices.Sort(sizes)
	return strings.Join(sizes, "\n") + "\n" + strings.Join(endpoints, "\n")
}

// Slices come out as Kubernetes' reconciler makes them, with as many writes. spec: WORK-4, WORK-5
func TestSlicesAreDecidedAlike(t *testing.T) {
	r := random(t)
	rounds, byTopology, hinted := 0, 0, 0
	for rounds < min(*count, 4000) {
		w := newServiceWorld(r)
		most := pick(r, []int{1, 3, 5, 100})
		var existing []*discoveryv1.EndpointSlice
		for i := range 25 {
			rounds++
			for range 1 + r.IntN(3) {
				w.step()
			}
			after, writes, event, failed := w.theirs(t, existing, most, i)
			mine, plan := w.ourPlan(t, existing, most)
			auto := w.service.Annotations["service.kubernetes.io/topology-mode"] == "Auto" ||
				w.service.Annotations["service.kubernetes.io/topology-aware-hints"] == "auto"
			var them []*od.EndpointSlice
			for _, s := range after {
				them = append(them, convert(t, s, &od.EndpointSlice{}))
			}
			if want, got := picture(them, !auto), picture(mine, !auto); want != got {
				t.Fatalf("Kubernetes:\n%s\nMonoplane:\n%s", want, got)
			}
			got := map[string]int{}
			for verb, n := range map[string]int{"create": len(plan.Create), "update": len(plan.Update),
				"delete": len(plan.Delete)} {
				if n > 0 {
					got[verb] = n
				}
			}
			// Kubernetes now and then writes a slice in which nothing changes. Which slices get new hints by topology
			// depends on which it looks at first.
			if auto || got["update"] < writes["update"] {
				delete(writes, "update")
				delete(got, "update")
			}
			if !maps.Equal(writes, got) {
				t.Fatalf("Kubernetes writes %v, Monoplane %v\nbefore:\n%+v\nafter:\n%s",
					writes, got, existing, picture(mine, true))
			}
			if failed != (len(plan.Missing) > 0) {
				t.Fatalf("Kubernetes fails: %v; Monoplane misses nodes of %v", failed, plan.Missing)
			}
			if auto {
				byTopology++
				last := plan.Topology[len(plan.Topology)-1]
				if len(plan.Topology) == 1 {
					want := "Normal TopologyAwareHintsEnabled Topology Aware Hints has been enabled, addressType: " + last.Family
					if last.Refused != "" {
						want = fmt.Sprintf("Warning TopologyAwareHintsDisabled %s, addressType: %s", last.Refused, last.Family)
					} else {
						hinted++
						if a, b := hintsByZone(them), hintsByZone(mine); !maps.Equal(a, b) && !near(a, b) {
							t.Fatalf("by zone, Kubernetes: %v, Monoplane: %v", a, b)
						}
					}
					if event != want {
						t.Fatalf("event %q, not %q", event, want)
					}
				}
			}
			existing = after
		}
	}
	if byTopology == 0 || hinted == 0 {
		t.Errorf("%d rounds with hints by topology, %d with hints", byTopology, hinted)
	}
}

// hintsByZone counts the endpoints for each zone.
func hintsByZone(all []*od.EndpointSlice) map[string]int {
	out := map[string]int{}
	for _, s := range all {
		for _, e := range s.GetEndpoints() {
			for _, z := range e.GetHints().GetForZones() {
				if e.GetConditions().GetReady() {
					out[z.GetName()]++
				}
			}
		}
	}
	return out
}

// near says whether two counts differ by what Kubernetes leaves to chance: which of two zones that lack the same gets
// an endpoint first.
func near(a, b map[string]int) bool {
	sum := 0
	for _, zone := range slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b))) {
		d := a[zone] - b[zone]
		if d < -1 || d > 1 {
			return false
		}
		sum += d
	}
	return sum == 0
}

// convert returns what Monoplane reads of an object of Kubernetes.
func convert[T proto.Message](t *testing.T, k upstream, o T) T {
	t.Helper()
	out, err := ours(k, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Which changes of a pod matter is decided alike.
func TestPodChangesMatterAlike(t *testing.T) {
	r := random(t)
	matters, not := 0, 0
	for range *count {
		w := newServiceWorld(r)
		old := w.pod()
		old.ResourceVersion = "1"
		now := old.DeepCopy()
		now.ResourceVersion = "2"
		switch r.IntN(9) {
		case 0:
			now.Labels = map[string]string{"app": pick(r, []string{"web", "db"})}
		case 1:
			now.Status.Conditions[0].Status = pick(r, []v1.ConditionStatus{"True", "False"})
		case 2:
			now.DeletionTimestamp = &metav1.Time{Time: time.Unix(5, 0)}
		case 3:
			now.Spec.Hostname = pick(r, []string{"", "x"})
		case 4:
			now.Status.PodIPs = nil
		case 5:
			now.Status.Message = "x"
		case 6:
			now.Annotations = map[string]string{"a": "b"}
		}
		key := endpointsliceutil.GetPodUpdateProjectionKey(old, now)
		itself, membership := endpoint.Changed(convert(t, old, &corev1.Pod{}), convert(t, now, &corev1.Pod{}))
		if (key != nil) != (itself || membership) || key != nil && (key.OldLabels != nil) != membership {
			t.Fatalf("Kubernetes: %v, Monoplane: %v %v\n%v\n%v", key, itself, membership, old, now)
		}
		if key == nil {
			not++
		} else {
			matters++
		}
	}
	if matters == 0 || not == 0 {
		t.Errorf("%d changes mattered, %d did not", matters, not)
	}
}
