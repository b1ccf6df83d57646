package oracle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierr "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	apiservice "k8s.io/kubernetes/pkg/api/service"
	"k8s.io/kubernetes/pkg/apis/core"
	svcreg "k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	"k8s.io/kubernetes/pkg/registry/core/service/portallocator"
	svcstorage "k8s.io/kubernetes/pkg/registry/core/service/storage"
	netutils "k8s.io/utils/net"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/service"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/rules/servicerange"
)

// theirServices is Kubernetes' storage of Services, without anything to store in.
type theirServices struct{ *genericregistry.Store }

// newServices returns both sides, with the same ranges and the same Services of others.
func newServices(t *testing.T, dual bool) (theirServices, service.Services, *service.Taken) {
	t.Helper()
	cidrs, text := map[core.IPFamily]string{core.IPv4Protocol: "10.96.0.0/24"}, "10.96.0.0/24"
	if dual {
		cidrs[core.IPv6Protocol] = "fd00::/120"
		text += ",fd00::/120"
	}
	allocators := map[core.IPFamily]ipallocator.Interface{}
	for family, cidr := range cidrs {
		_, parsed, err := netutils.ParseCIDRSloppy(cidr)
		if err != nil {
			t.Fatal(err)
		}
		a, err := ipallocator.NewInMemory(parsed)
		if err != nil {
			t.Fatal(err)
		}
		allocators[family] = a
	}
	ports, err := portallocator.NewInMemory(*utilnet.ParsePortRangeOrDie("30000-30999"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(allocators[core.IPv4Protocol].Allocate(net.ParseIP("10.96.0.20")), ports.Allocate(30005)); err != nil {
		t.Fatal(err)
	}
	opts := generic.RESTOptions{
		StorageConfig:  (&storagebackend.Config{}).ForResource(schema.GroupResource{Resource: "services"}),
		ResourcePrefix: "services",
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error),
			func() runtime.Object, func() runtime.Object, storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			return nil, func() {}, nil
		},
	}
	rest, _, _, err := svcstorage.NewREST(opts, core.IPv4Protocol, allocators, ports, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var r servicerange.Ranges
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
	return theirServices{rest.Store}, service.New(registry.Deps{}.Complete(), r, false), taken
}

// create is what Kubernetes makes of a new Service.
func (s theirServices) create(in *core.Service) error {
	ctx := context.Background()
	finish, err := s.BeginCreate(ctx, in, &metav1.CreateOptions{})
	if err != nil {
		return err
	}
	svcreg.Strategy.PrepareForCreate(ctx, in)
	if errs := svcreg.Strategy.Validate(ctx, in); len(errs) > 0 {
		finish(ctx, false)
		return apierr.NewInvalid(core.Kind("Service"), in.Name, errs)
	}
	finish(ctx, true)
	return nil
}

// errPanic is Kubernetes' answer where its own code does not stand what it is given; its server says "internal error".
var errPanic = errors.New("panic in Kubernetes")

// update is what Kubernetes makes of a change.
func (s theirServices) update(in, old *core.Service) (err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("%w: %v", errPanic, what)
		}
	}()
	ctx := context.Background()
	if _, err := s.BeginUpdate(ctx, in, old, &metav1.UpdateOptions{}); err != nil {
		return err
	}
	svcreg.Strategy.PrepareForUpdate(ctx, in, old)
	if errs := svcreg.Strategy.ValidateUpdate(ctx, in, old); len(errs) > 0 {
		return apierr.NewInvalid(core.Kind("Service"), in.Name, errs)
	}
	return nil
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

// theirServiceFaults and ourServiceFaults are the faults that an error lists, or its text where it lists none. The text of a fault
// that repeats more than a plain value is left out.
func theirServiceFaults(err error) map[fault]bool {
	var status *apierr.StatusError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &status) || status.ErrStatus.Details == nil || len(status.ErrStatus.Details.Causes) == 0 ||
		status.ErrStatus.Code == 500:
		return map[fault]bool{{message: err.Error()}: true}
	}
	set := map[fault]bool{}
	for _, c := range status.ErrStatus.Details.Causes {
		set[fault{string(c.Type), c.Field, plainText(c.Message)}] = true
	}
	return set
}

func ourServiceFaults(err error) map[fault]bool {
	if err == nil {
		return nil
	}
	var refused *apierrors.Error
	if !errors.As(err, &refused) || len(refused.Status().GetDetails().GetCauses()) == 0 {
		return map[fault]bool{{message: err.Error()}: true}
	}
	set := map[fault]bool{}
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
		s.Spec.IPFamilies = pick(r, [][]v1.IPFamily{nil, {"IPv4"}, {"IPv6"}, {"IPv4", "IPv6"}, {"IPv6", "IPv4"}, {"IPv4", "IPv4"}})
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

// versioned is what Kubernetes would store.
func versioned(t *testing.T, in *core.Service) *v1.Service {
	t.Helper()
	out := &v1.Service{}
	if err := legacyscheme.Scheme.Convert(in, out, nil); err != nil {
		t.Fatal(err)
	}
	return out
}

// Services are given the same, and refused for the same reasons, when they are created and when they change.
func TestServicesAreServedAlike(t *testing.T) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	defer klog.LogToStderr(true)
	r := random(t)
	bad, made, changed := 0, 0, 0
	for i := 0; i < *count && bad < 25; i++ {
		their, our, taken := newServices(t, r.IntN(2) == 0)
		k := randomService(r)
		var what []string
		if r.IntN(2) == 0 {
			what = alter(r, &k.Spec, r.IntN(3), nil)
			what = append(what, alter(r, &k.ObjectMeta, r.IntN(2), nil)...)
		}
		asked := ourService(t, k)
		mine := ourService(t, k)
		in := internal(t, k, &core.Service{})
		theirErr, myErr := their.create(in), ourCreate(our, mine, taken)
		if report(t, append(what, fmt.Sprint("create ", k.Spec)), compare(theirServiceFaults(theirErr), ourServiceFaults(myErr))) {
			bad++
			continue
		}
		if theirErr != nil {
			continue
		}
		made++
		live := versioned(t, in)
		result := ourService(t, live)
		for _, text := range apiservice.GetWarningsForService(in, nil) {
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
		now, old := internal(t, next, &core.Service{}), internal(t, live, &core.Service{})
		theirErr = their.update(now, old)
		mine = service.Apply(want, was)
		if myErr = give(our, mine, was, taken); myErr == nil {
			myErr = refusedService(mine, service.ValidateUpdate(mine, was))
		}
		if theirErr != nil && myErr != nil && strings.HasPrefix(theirErr.Error(), "duplicate nodePort") {
			continue // an internal error of Kubernetes, which we call invalid
		}
		if errors.Is(theirErr, errPanic) && myErr != nil {
			continue // such as a second family of addresses that the cluster does not have
		}
		if report(t, append(what, fmt.Sprint("update ", live.Spec, " to ", next.Spec)),
			compare(theirServiceFaults(theirErr), ourServiceFaults(myErr))) {
			bad++
			continue
		}
		if theirErr != nil {
			continue
		}
		changed++
		result = ourService(t, versioned(t, now))
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
