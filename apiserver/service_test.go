package apiserver_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/store/test/etcdtest"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/rules/servicerange"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

func newService(name string, change ...func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: &corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []*corev1.ServicePort{{
			Port: 80, TargetPort: &metav1.IntOrString{IntVal: 8080},
		}}},
	}
	for _, f := range change {
		f(s.Spec)
	}
	return s
}

func typed(t string) func(*corev1.ServiceSpec) { return func(s *corev1.ServiceSpec) { s.Type = t } }

func at(ip string) func(*corev1.ServiceSpec) { return func(s *corev1.ServiceSpec) { s.ClusterIP = ip } }

func (c client) makeService(t testing.TB, s *corev1.Service, dryRun ...string) (*corev1.Service, error) {
	t.Helper()
	return c.Services.Create(ctx(t), &corev1rpc.CreateServiceRequest{Object: s, DryRun: dryRun})
}

func (c client) patchService(t testing.TB, name, patch string) (*corev1.Service, error) {
	t.Helper()
	return c.Services.Patch(ctx(t), &metav1.PatchRequest{
		Namespace: "default", Name: name, PatchType: "application/merge-patch+json", Patch: []byte(patch),
	})
}

func (c client) dropService(t testing.TB, name string) error {
	t.Helper()
	_, err := c.Services.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: name})
	return err
}

// ranges is a server's configuration with those ranges.
func ranges(addresses, ports string) func(*apiserver.Config) {
	return func(c *apiserver.Config) {
		list, err := servicerange.ParseAddresses(addresses)
		if err != nil {
			panic(err)
		}
		c.Services.Addresses = list
		if c.Services.Ports, err = servicerange.ParsePorts(ports); err != nil {
			panic(err)
		}
	}
}

func wants(t *testing.T, err error, reason apierrors.Reason, text string) {
	t.Helper()
	if !apierrors.Is(err, reason) || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want %s with %q", err, reason, text)
	}
}

func TestServicesAreGivenAddresses(t *testing.T) {
	c := start(t, ranges("10.96.0.0/24", "30000-30099"))
	admin := c.admin()
	a := must(admin.makeService(t, newService("a")))(t)
	if s := a.Spec; !strings.HasPrefix(s.ClusterIP, "10.96.0.") || !slices.Equal(s.ClusterIPs, []string{s.ClusterIP}) ||
		s.GetIpFamilyPolicy() != "SingleStack" || !slices.Equal(s.IpFamilies, []string{"IPv4"}) || s.Type != "ClusterIP" ||
		s.GetInternalTrafficPolicy() != "Cluster" || s.SessionAffinity != "None" {
		t.Errorf("created: %v", s)
	}
	_, err := admin.makeService(t, newService("b", at(a.Spec.ClusterIP)))
	wants(t, err, apierrors.Invalid, fmt.Sprintf("spec.clusterIPs: Invalid value: [%q]: failed to allocate IP %s: "+
		"provided IP is already allocated", a.Spec.ClusterIP, a.Spec.ClusterIP))
	_, err = admin.makeService(t, newService("b", at("10.97.0.1")))
	wants(t, err, apierrors.Invalid, "the provided network does not match the current range")

	dry := must(admin.makeService(t, newService("b", at("10.96.0.5")), "All"))(t)
	if dry.Spec.ClusterIPs[0] != "10.96.0.5" {
		t.Errorf("dry run: %v", dry.Spec)
	}
	must(admin.makeService(t, newService("b", at("10.96.0.5"))))(t)

	none := must(admin.makeService(t, newService("none", at("None"))))(t)
	if !slices.Equal(none.Spec.ClusterIPs, []string{"None"}) {
		t.Errorf("headless: %v", none.Spec)
	}

	if err := admin.dropService(t, "b"); err != nil {
		t.Fatal(err)
	}
	must(admin.makeService(t, newService("c", at("10.96.0.5"))))(t)
}

func TestServicesAreGivenNodePorts(t *testing.T) {
	c := start(t, ranges("10.96.0.0/24", "30000-30002"))
	admin := c.admin()
	a := must(admin.makeService(t, newService("a", typed("NodePort"))))(t)
	port := a.Spec.Ports[0].NodePort
	if port < 30000 || port > 30002 || a.Spec.ExternalTrafficPolicy != "Cluster" {
		t.Errorf("created: %v", a.Spec)
	}
	asks := func(n int32) func(*corev1.ServiceSpec) {
		return func(s *corev1.ServiceSpec) { s.Type, s.Ports[0].NodePort = "NodePort", n }
	}
	_, err := admin.makeService(t, newService("b", asks(port)))
	wants(t, err, apierrors.Invalid,
		fmt.Sprintf("spec.ports[0].nodePort: Invalid value: %d: provided port is already allocated", port))
	_, err = admin.makeService(t, newService("b", asks(80)))
	wants(t, err, apierrors.Invalid, "provided port is not in the valid range. The range of valid ports is 30000-30002")

	local := must(admin.makeService(t, newService("b", typed("LoadBalancer"), func(s *corev1.ServiceSpec) {
		s.ExternalTrafficPolicy = "Local"
	})))(t)
	if s := local.Spec; s.HealthCheckNodePort == 0 || s.HealthCheckNodePort == s.Ports[0].NodePort ||
		s.HealthCheckNodePort == port || s.Ports[0].NodePort == port || !s.GetAllocateLoadBalancerNodePorts() {
		t.Errorf("load balancer: %v", s)
	}
	_, err = admin.makeService(t, newService("c", typed("NodePort")))
	wants(t, err, apierrors.InternalError, "failed to allocate a nodePort: range is full")

	// The type that needs no ports gives them back in the write that changes it.
	changed := must(admin.patchService(t, "b", `{"spec":{"type":"ClusterIP"}}`))(t)
	if s := changed.Spec; s.HealthCheckNodePort != 0 || s.Ports[0].NodePort != 0 || s.ExternalTrafficPolicy != "" ||
		s.AllocateLoadBalancerNodePorts != nil || s.ClusterIP != local.Spec.ClusterIP {
		t.Errorf("changed: %v", s)
	}
	must(admin.makeService(t, newService("c", typed("NodePort"))))(t)
	// What is given stays when the same manifest is applied again.
	next := newService("a", typed("NodePort"))
	again := must(admin.Services.Update(ctx(t), &corev1rpc.UpdateServiceRequest{Object: next}))(t)
	if again.Spec.Ports[0].NodePort != port || again.Spec.ClusterIP != a.Spec.ClusterIP ||
		again.Metadata.ResourceVersion != a.Metadata.ResourceVersion {
		t.Errorf("applied again: %v", again)
	}
}

func TestServicesChangeTheirType(t *testing.T) {
	c := start(t, ranges("10.96.0.0/24", "30000-30099"))
	admin := c.admin()
	a := must(admin.makeService(t, newService("a", at("10.96.0.9"))))(t)
	named := must(admin.patchService(t, "a", `{"spec":{"type":"ExternalName","externalName":"example.com"}}`))(t)
	if s := named.Spec; s.ClusterIP != "" || len(s.ClusterIPs) > 0 || len(s.IpFamilies) > 0 || s.IpFamilyPolicy != nil {
		t.Errorf("changed from %v to %v", a.Spec, s)
	}
	must(admin.makeService(t, newService("b", at("10.96.0.9"))))(t)
	back := must(admin.patchService(t, "a", `{"spec":{"type":"NodePort","externalName":null}}`))(t)
	if s := back.Spec; s.ClusterIP == "" || s.ClusterIP == "10.96.0.9" || s.Ports[0].NodePort == 0 {
		t.Errorf("changed back to %v", s)
	}
	_, err := admin.patchService(t, "a", `{"spec":{"clusterIP":"10.96.0.10","clusterIPs":["10.96.0.10"]}}`)
	wants(t, err, apierrors.Invalid, "may not change once set")
	_, err = admin.patchService(t, "a", `{"spec":{"type":"LoadBalancer","loadBalancerClass":"x"}}`)
	if err != nil {
		t.Error(err)
	}
	_, err = admin.patchService(t, "a", `{"spec":{"loadBalancerClass":"y"}}`)
	wants(t, err, apierrors.Invalid, "spec.loadBalancerClass")

	// A status says nothing of the spec.
	balanced := must(admin.Services.PatchStatus(ctx(t), &metav1.PatchRequest{
		Namespace: "default", Name: "a", PatchType: "application/merge-patch+json",
		Patch: []byte(`{"spec":{"type":"ClusterIP"},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`),
	}))(t)
	if balanced.Spec.Type != "LoadBalancer" || balanced.Status.LoadBalancer.Ingress[0].GetIpMode() != "VIP" {
		t.Errorf("status: %v", balanced)
	}
	plain := must(admin.patchService(t, "a", `{"spec":{"type":"ClusterIP"}}`))(t)
	if len(plain.Status.LoadBalancer.Ingress) > 0 || plain.Spec.LoadBalancerClass != nil {
		t.Errorf("no load balancer any more: %v", plain)
	}
}

func TestServicesOfTwoFamilies(t *testing.T) {
	c := start(t, ranges("10.96.0.0/24,fd00:1::/120", "30000-30099"))
	admin := c.admin()
	policy := func(p string) func(*corev1.ServiceSpec) {
		return func(s *corev1.ServiceSpec) { s.IpFamilyPolicy = &p }
	}
	one := must(admin.makeService(t, newService("one")))(t)
	two := must(admin.makeService(t, newService("two", policy("PreferDualStack"))))(t)
	if len(one.Spec.ClusterIPs) != 1 || len(two.Spec.ClusterIPs) != 2 ||
		!slices.Equal(two.Spec.IpFamilies, []string{"IPv4", "IPv6"}) ||
		!strings.HasPrefix(two.Spec.ClusterIPs[1], "fd00:1::") {
		t.Errorf("one: %v, two: %v", one.Spec, two.Spec)
	}
	more := must(admin.patchService(t, "one", `{"spec":{"ipFamilyPolicy":"RequireDualStack"}}`))(t)
	if len(more.Spec.ClusterIPs) != 2 || more.Spec.ClusterIPs[0] != one.Spec.ClusterIP {
		t.Errorf("one more: %v", more.Spec)
	}
	second := more.Spec.ClusterIPs[1]
	less := must(admin.patchService(t, "one", `{"spec":{"ipFamilyPolicy":"SingleStack"}}`))(t)
	if len(less.Spec.ClusterIPs) != 1 || len(less.Spec.IpFamilies) != 1 {
		t.Errorf("one less: %v", less.Spec)
	}
	free := must(admin.makeService(t, newService("free", func(s *corev1.ServiceSpec) {
		s.ClusterIP, s.ClusterIPs = second, []string{second}
	})))(t)
	if !slices.Equal(free.Spec.IpFamilies, []string{"IPv6"}) {
		t.Errorf("of the second family: %v", free.Spec)
	}
	admin = start(t).admin()
	_, err := admin.makeService(t, newService("two", policy("RequireDualStack")))
	wants(t, err, apierrors.Invalid, "this cluster is not configured for dual-stack services")
	// Without a selector, a Service without addresses may be of both families anywhere; one that has an address cannot
	// become that.
	must(admin.makeService(t, newService("loose", func(s *corev1.ServiceSpec) { s.Selector = nil })))(t)
	_, err = admin.patchService(t, "loose", `{"spec":{"clusterIP":"None","clusterIPs":["None"],"ipFamilyPolicy":
		"RequireDualStack"}}`)
	wants(t, err, apierrors.Invalid, "spec.ipFamilies[1]: Invalid value: \"IPv6\": not configured on this cluster")
}

func TestServicesWarn(t *testing.T) {
	admin := start(t).admin()
	said := func(f func(grpc.CallOption) error) string {
		var header metadata.MD
		if err := f(grpc.Header(&header)); err != nil {
			t.Error(err)
		}
		return strings.Join(header.Get(warning.MetadataKey), "\n")
	}
	create := func(s *corev1.Service) string {
		return said(func(header grpc.CallOption) error {
			_, err := admin.Services.Create(ctx(t), &corev1rpc.CreateServiceRequest{Object: s}, header)
			return err
		})
	}
	if text := create(newService("a")); !strings.Contains(text, "is carried only where") {
		t.Errorf("of a cluster IP: %q", text)
	}
	carried := start(t, func(c *apiserver.Config) { c.PodNetwork = true }).admin()
	if text := said(func(header grpc.CallOption) error {
		_, err := carried.Services.Create(ctx(t), &corev1rpc.CreateServiceRequest{Object: newService("a")}, header)
		return err
	}); text != "" {
		t.Errorf("of a cluster IP to which traffic is carried: %q", text)
	}
	if text := create(newService("b", at("None"))); text != "" {
		t.Errorf("of a headless service: %q", text)
	}
	useless := newService("c", at("None"), func(s *corev1.ServiceSpec) { s.LoadBalancerIP = "192.0.2.1" })
	if text := create(useless); text != "spec.loadBalancerIP is ignored for headless services" {
		t.Errorf("of a field without use: %q", text)
	}
	if text := said(func(header grpc.CallOption) error {
		_, err := admin.Services.Patch(ctx(t), &metav1.PatchRequest{
			Namespace: "default", Name: "a", PatchType: "application/merge-patch+json",
			Patch: []byte(`{"metadata":{"labels":{"a":"b"}}}`),
		}, header)
		return err
	}); text != "" {
		t.Errorf("of another change: %q", text)
	}
}

// No address and no port is ever given to two Services, through whatever server of an etcd, and none is lost: servers
// die in the middle of writes, clients go away, and others come.
// spec: OBJ-2
func TestAddressesAreGivenOnce(t *testing.T) {
	const workers, rounds = 6, 50
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	endpoint := etcdtest.Start(t)
	configure := ranges("10.96.0.0/28", "30000-30019")
	// The servers, of which each is replaced now and then, are asked for under a lock.
	var mu sync.Mutex
	servers := make([]client, 2)
	begin := func() client {
		return startWith(t, apitest.Config{Endpoints: []string{endpoint}}, configure).admin()
	}
	for i := range servers {
		servers[i] = begin()
	}
	watched := oneMore(t, endpoint, configure)
	from := must(watched.store.Revision(ctx(t)))(t)
	var all sync.WaitGroup
	for worker := range uint64(workers) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, worker))
			for range rounds {
				mu.Lock()
				c := servers[r.IntN(len(servers))]
				mu.Unlock()
				churn(t, r, c)
			}
		})
	}
	all.Go(func() {
		for i := range 4 {
			next := begin()
			mu.Lock()
			servers[i%2] = next
			mu.Unlock()
		}
	})
	all.Wait()

	last := must(watched.admin().makeService(t, newService("last", at("None"))))(t)
	have := map[string]*corev1.ServiceSpec{}
	w := must(watched.store.Watch(ctx(t), corev1.ServiceKind,
		store.WatchOptions{ResourceVersion: fmt.Sprint(from)}))(t)
	defer w.Stop()
	seen := 0
	for done := false; !done; {
		for _, e := range must(w.Next(ctx(t)))(t) {
			o, deleted := e.Object.(*corev1.Service), e.Type == "DELETED"
			name := o.Metadata.Name
			have[name] = o.Spec
			if deleted {
				delete(have, name)
			}
			if twice := sharedBy(have); twice != "" {
				t.Fatalf("at revision %s: %s", o.Metadata.ResourceVersion, twice)
			}
			seen++
			done = done || o.Metadata.Uid == last.Metadata.Uid
		}
	}
	if seen < workers*rounds/10 { // Many find no address or port, or a server that is ending.
		t.Errorf("only %d writes have succeeded", seen)
	}
	// What is not in use is there for others, all of it.
	used := 0
	for _, s := range have {
		if s.ClusterIP != "None" && s.ClusterIP != "" {
			used++
		}
	}
	admin := watched.admin()
	for i := used; i < 14; i++ {
		must(admin.makeService(t, newService(fmt.Sprint("rest-", i))))(t)
	}
	_, err := admin.makeService(t, newService("more"))
	wants(t, err, apierrors.InternalError, `failed to allocate a serviceIP for Service "more": range is full`)
}

// oneMore returns one more server of an etcd.
func oneMore(t *testing.T, endpoint string, configure func(*apiserver.Config)) *cluster {
	t.Helper()
	return startWith(t, apitest.Config{Endpoints: []string{endpoint}}, configure)
}

// churn is one write of a client that may go away before it is answered.
func churn(t *testing.T, r *rand.Rand, c client) {
	t.Helper()
	call, cancel := context.WithCancel(ctx(t))
	defer cancel()
	if r.IntN(4) == 0 {
		timer := time.AfterFunc(time.Duration(r.IntN(3000))*time.Microsecond, cancel)
		defer timer.Stop()
	}
	name := fmt.Sprint("s", r.IntN(12))
	s := newService(name)
	s.Spec.Type = []string{"ClusterIP", "NodePort", "LoadBalancer"}[r.IntN(3)]
	if r.IntN(3) == 0 {
		s.Spec.ClusterIP = fmt.Sprint("10.96.0.", 1+r.IntN(14))
	}
	if r.IntN(3) == 0 && s.Spec.Type != "ClusterIP" {
		s.Spec.Ports[0].NodePort = 30000 + r.Int32N(20)
	}
	switch r.IntN(5) {
	case 0, 1:
		_, _ = c.Services.Create(call, &corev1rpc.CreateServiceRequest{Object: s})
	case 2:
		_, _ = c.Services.Update(call, &corev1rpc.UpdateServiceRequest{Object: s})
	case 3:
		_, _ = c.Services.Delete(call, &metav1.DeleteRequest{Namespace: "default", Name: name})
	case 4:
		patch := []string{
			`{"spec":{"type":"ExternalName","externalName":"example.com"}}`, `{"spec":{"type":"NodePort"}}`,
			`{"spec":{"type":"ClusterIP"}}`,
		}[r.IntN(3)]
		_, _ = c.Services.Patch(call, &metav1.PatchRequest{
			Namespace: "default", Name: name, PatchType: "application/merge-patch+json", Patch: []byte(patch),
		})
	}
}

// sharedBy says what two Services have, if anything.
func sharedBy(all map[string]*corev1.ServiceSpec) string {
	by := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		var claims []string
		for _, ip := range s.ClusterIPs {
			if ip != "None" {
				claims = append(claims, ip)
			}
		}
		for _, p := range s.Ports {
			if p.NodePort != 0 {
				claims = append(claims, fmt.Sprint("port ", p.NodePort))
			}
		}
		if s.HealthCheckNodePort != 0 {
			claims = append(claims, fmt.Sprint("port ", s.HealthCheckNodePort))
		}
		for _, c := range claims {
			if other, ok := by[c]; ok {
				return fmt.Sprintf("%s and %s both have %s", other, name, c)
			}
			by[c] = name
		}
	}
	return ""
}
