package oracle

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/service"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/rules/servicerange"
)

// servedBy returns what serves Services here, with the same ranges and the same Services of others as Kubernetes'
// code.
func servedBy(t *testing.T, dual bool) (service.Services, *service.Taken) {
	t.Helper()
	text := "10.96.0.0/24"
	if dual {
		text += ",fd00::/120"
	}
	var r servicerange.Ranges
	var err error
	if r.Addresses, err = servicerange.ParseAddresses(text); err != nil {
		t.Fatal(err)
	}
	if r.Ports, err = servicerange.ParsePorts("30000-30999"); err != nil {
		t.Fatal(err)
	}
	taken := &service.Taken{}
	taken.Add(&corev1.Service{Spec: &corev1.ServiceSpec{
		Type: "NodePort", ClusterIPs: []string{"10.96.0.20"}, Ports: []*corev1.ServicePort{{NodePort: 30005}},
	}})
	return service.New(registry.Deps{}.Complete(), r, false), taken
}

func give(s service.Services, next, live *corev1.Service, taken *service.Taken) error {
	_, err := s.Give(next, live, map[string]string{}, func() (*service.Taken, error) { return taken, nil })
	return err
}

func ourCreate(s service.Services, o *corev1.Service, taken *service.Taken) error {
	service.DefaultNew(o)
	if err := give(s, o, nil, taken); err != nil {
		return err
	}
	return refusedService(o, service.Validate(o))
}

func refusedService(o *corev1.Service, causes []apierrors.Cause) error {
	if len(causes) > 0 {
		return apierrors.NewInvalid(corev1.ServiceKind, o.GetMetadata().GetName(), causes)
	}
	return nil
}

// ourServiceFaults are the faults that an error lists, or its text where it lists none. The text of a fault that
// repeats more than a plain value is left out.
func ourServiceFaults(err error) faults {
	if err == nil {
		return nil
	}
	var refused *apierrors.Error
	if !errors.As(err, &refused) || len(refused.Status().GetDetails().GetCauses()) == 0 {
		return faults{{message: err.Error()}: true}
	}
	set := faults{}
	for _, c := range refused.Status().GetDetails().GetCauses() {
		set[fault{c.Reason, c.Field, plainText(c.Message)}] = true
	}
	return set
}

// plainText is the text of a fault. Kubernetes says in two ways that an address is of no range, and we as 1.36 does
// outside of its tests.
func plainText(s string) string {
	if i := strings.Index(s, "the provided IP ("); i >= 0 {
		s = s[:i] + "the provided network does not match the current range"
	}
	if before, after, ok := strings.Cut(s, "]: may not change once set"); ok && after == "" &&
		strings.HasPrefix(before, "Invalid value: [") {
		return "may not change" // an address may have been given to the Service before it was refused
	}
	if s, ok := strings.CutSuffix(s, "]: 'None' must be the first and only value"); ok {
		return s[:len("Invalid value: [")]
	}
	if strings.HasPrefix(s, "Duplicate value: {") || strings.HasPrefix(s, "Duplicate value: 30") {
		return "" // two ports of one number may have been given the same
	}
	return s
}

func randomService(r *rand.Rand) *v1.Service {
	s := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", ResourceVersion: "1"},
		Spec: v1.ServiceSpec{
			Type:     pick(r, []v1.ServiceType{"ClusterIP", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName", ""}),
			Selector: pick(r, []map[string]string{nil, {"app": "web"}}),
		},
	}
	for i := range r.IntN(4) {
		p := v1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(80 + r.IntN(3)),
			Protocol: pick(r, []v1.Protocol{"TCP", "UDP", ""})}
		if r.IntN(3) == 0 {
			p.TargetPort = pick(r, []intstr.IntOrString{intstr.FromInt32(8080), intstr.FromString("http")})
		}
		if s.Spec.Type != "ClusterIP" && r.IntN(3) == 0 {
			p.NodePort = pick(r, []int32{30001, 30001, 30002, 30005, 80})
		}
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	if s.Spec.Type == "ExternalName" {
		s.Spec.ExternalName = "example.com"
		return s
	}
	if s.Spec.Type == "LoadBalancer" && r.IntN(2) == 0 {
		s.Spec.ExternalTrafficPolicy = "Local"
		s.Spec.HealthCheckNodePort = pick(r, []int32{0, 0, 30001, 30003, 30005, 99})
		s.Spec.AllocateLoadBalancerNodePorts = pick(r, []*bool{nil, ptr(true), ptr(false)})
		s.Spec.LoadBalancerClass = pick(r, []*string{nil, ptr("a/b")})
	}
	changeAddresses(r, s)
	return s
}

// changeAddresses changes what a Service says of its addresses.
func changeAddresses(r *rand.Rand, s *v1.Service) {
	some := [][]string{nil, nil, {"None"}, {"10.96.0.5"}, {"10.96.0.20"}, {"fd00::5"}, {"10.96.0.5", "fd00::5"},
		{"fd00::5", "10.96.0.5"}, {"10.97.0.1"}, {"10.96.0.5", "10.96.0.6"}, {"10.96.0.0"}, {"010.96.0.5"}}
	if r.IntN(2) == 0 {
		s.Spec.ClusterIPs = pick(r, some)
		s.Spec.ClusterIP = ""
		if len(s.Spec.ClusterIPs) > 0 && r.IntN(8) > 0 {
			s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
		}
	} else if r.IntN(2) == 0 {
		s.Spec.ClusterIP = pick(r, []string{"", "None", "10.96.0.7", "fd00::7"})
	}
	if r.IntN(2) == 0 {
		s.Spec.IPFamilyPolicy = ptr(pick(r, []v1.IPFamilyPolicy{"SingleStack", "PreferDualStack", "RequireDualStack"}))
	}
	if r.IntN(3) == 0 {
		s.Spec.IPFamilies = pick(r, [][]v1.IPFamily{nil, {"IPv4"}, {"IPv6"}, {"IPv4", "IPv6"}, {"IPv6", "IPv4"}, {"IPv4",
			"IPv4"}})
	}
}

// changeService changes a Service as users do.
func changeService(r *rand.Rand, s *v1.Service) []string {
	var what []string
	for range 1 + r.IntN(2) {
		switch n := r.IntN(8); n {
		case 0:
			s.Spec.Type = pick(r, []v1.ServiceType{"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"})
			if s.Spec.Type == "ExternalName" {
				s.Spec.ExternalName = "example.com"
			}
			what = append(what, "type "+string(s.Spec.Type))
		case 1:
			changeAddresses(r, s)
			what = append(what, "addresses")
		case 2:
			for i := range s.Spec.Ports {
				s.Spec.Ports[i].NodePort = pick(r, []int32{0, s.Spec.Ports[i].NodePort, 30004, 30005, 80})
			}
			what = append(what, "node ports")
		case 3:
			s.Spec.ExternalTrafficPolicy = pick(r, []v1.ServiceExternalTrafficPolicy{"", "Cluster", "Local"})
			what = append(what, "policy")
		case 4:
			s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = "", nil, nil, nil
			what = append(what, "nothing given")
		case 5:
			s.Spec.HealthCheckNodePort = pick(r, []int32{0, 30006, 30005})
			s.Spec.LoadBalancerClass = pick(r, []*string{nil, ptr("a/b"), ptr("c")})
			what = append(what, "load balancer")
		default:
			what = append(what, alter(r, &s.Spec, 1, nil)...)
		}
	}
	return what
}

// sameGiven replaces what was chosen at random by the order in which it was chosen: what is in asked, or was there
// before, is not.
func sameGiven(s *corev1.Service, known ...*corev1.Service) {
	order := map[string]int{}
	for _, k := range known {
		for _, ip := range k.GetSpec().GetClusterIPs() {
			order[ip] = 0
		}
		order[k.GetSpec().GetClusterIP()] = 0
		order[fmt.Sprint(k.GetSpec().GetHealthCheckNodePort())] = 0
		for _, p := range k.GetSpec().GetPorts() {
			order[fmt.Sprint(p.NodePort)] = 0
		}
	}
	next := 0
	of := func(x string) int {
		if n, ok := order[x]; ok {
			return n
		}
		next++
		order[x] = next
		return next
	}
	for i, ip := range s.Spec.ClusterIPs {
		if n := of(ip); n > 0 {
			s.Spec.ClusterIPs[i] = fmt.Sprint("given-", n)
		}
	}
	if n := of(s.Spec.ClusterIP); n > 0 {
		s.Spec.ClusterIP = fmt.Sprint("given-", n)
	}
	for _, p := range s.Spec.Ports {
		if n := of(fmt.Sprint(p.NodePort)); n > 0 && p.NodePort != 0 {
			p.NodePort = int32(n)
		}
	}
	if n := of(fmt.Sprint(s.Spec.HealthCheckNodePort)); n > 0 && s.Spec.HealthCheckNodePort != 0 {
		s.Spec.HealthCheckNodePort = int32(n)
	}
}

// servedService is a Service as Kubernetes stores it, with what it warns of, unless something is wrong with it.
// Internal says that its server would have answered with an internal error: of two ports of one number, or since its
// code does not stand what it is given, such as a second family of addresses that the cluster does not have.
type servedService struct {
	made[*v1.Service]
	Warnings []string
	Internal bool
}

// Services are given the same, and refused for the same reasons, when they are created and when they change.
func TestServicesAreServedAlike(t *testing.T) {
	r := random(t)
	bad, made, changed := 0, 0, 0
	for i := 0; i < *count && bad < 25; i++ {
		dual, past := r.IntN(2) == 0, &course{}
		our, taken := servedBy(t, dual)
		k := randomService(r)
		var what []string
		if r.IntN(2) == 0 {
			what = alter(r, &k.Spec, r.IntN(3), nil)
			what = append(what, alter(r, &k.ObjectMeta, r.IntN(2), nil)...)
		}
		asked := ourService(t, k)
		mine := ourService(t, k)
		created, myErr := ask[servedService](t, "new-services", past, dual, k), ourCreate(our, mine, taken)
		if report(t, append(what, fmt.Sprint("create ", k.Spec)), compare(created.Faults, ourServiceFaults(myErr))) {
			bad++
			continue
		}
		if len(created.Faults) > 0 {
			continue
		}
		made++
		live := created.Object
		result := ourService(t, live)
		for _, text := range created.Warnings {
			if !slices.Contains(service.Warnings(result), text) {
				t.Errorf("no warning %q: %v", text, result.Spec)
			}
		}
		sameGiven(result, asked)
		sameGiven(mine, asked)
		mine.Status, result.Status = nil, nil
		if report(t, append(what, fmt.Sprint("created ", k.Spec)), stored(t, result.Spec, mine.Spec)) {
			bad++
			continue
		}

		next := live.DeepCopy()
		what = changeService(r, next)
		was, want := ourService(t, live), ourService(t, next)
		service.Default(was)
		updated := ask[servedService](t, "services", past, next, live)
		mine = service.Apply(want, was)
		if myErr = give(our, mine, was, taken); myErr == nil {
			myErr = refusedService(mine, service.ValidateUpdate(mine, was))
		}
		if updated.Internal && myErr != nil {
			continue // we call invalid what it does not stand
		}
		if report(t, append(what, fmt.Sprint("update ", live.Spec, " to ", next.Spec)),
			compare(updated.Faults, ourServiceFaults(myErr))) {
			bad++
			continue
		}
		if len(updated.Faults) > 0 {
			continue
		}
		changed++
		result = ourService(t, updated.Object)
		sameGiven(result, was, want)
		sameGiven(mine, was, want)
		if report(t, append(what, fmt.Sprint("updated ", live.Spec, " to ", next.Spec)), stored(t, result.Spec, mine.Spec)) {
			bad++
		}
	}
	if made < *count/10 || changed < *count/20 {
		t.Errorf("%d of %d were made, %d changed", made, *count, changed)
	}
}

func ourService(t *testing.T, k *v1.Service) *corev1.Service {
	t.Helper()
	o, err := ours(k, &corev1.Service{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}
