package quota_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
	"monoplane.dev/rules/quota"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func quantities(pairs ...string) map[string]*metav1.Quantity {
	m := map[string]*metav1.Quantity{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &metav1.Quantity{String_: pairs[i+1]}
	}
	return m
}

func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "p", Namespace: "default"},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Resources: &corev1.ResourceRequirements{
			Requests: quantities("cpu", "100m", "memory", "64Mi"), Limits: quantities("memory", "128Mi"),
		}}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func claim(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Name: "c", Namespace: "default"},
		Spec: &corev1.PersistentVolumeClaimSpec{
			StorageClassName: proto.String("fast"),
			Resources:        &corev1.VolumeResourceRequirements{Requests: quantities("storage", "1500m")},
		},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

// deleted marks a pod that should be gone after a second's grace.
func deleted(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Metadata.DeletionTimestamp = &metav1.Time{Seconds: at.Unix()}
		p.Metadata.DeletionGracePeriodSeconds = proto.Int64(1)
	}
}

// What an object takes, by every name under which it may be limited. spec: OBJ-2
func TestOf(t *testing.T) {
	only := "count/pods=1"
	whole := "count/pods=1,cpu=100m,limits.memory=128Mi,memory=64Mi,pods=1,requests.cpu=100m,requests.memory=64Mi"
	ports := []*corev1.ServicePort{{Port: 80}, {Port: 81, NodePort: 30000}}
	service := func(kind string, allocate *bool) *corev1.Service {
		return &corev1.Service{
			Spec: &corev1.ServiceSpec{Type: kind, Ports: ports, AllocateLoadBalancerNodePorts: allocate},
		}
	}
	const claims = "count/persistentvolumeclaims=1,"
	for name, c := range map[string]struct {
		o    object.Object
		want string
	}{
		"a pod":                   {pod(), whole},
		"one that has ended":      {pod(func(p *corev1.Pod) { p.Status = &corev1.PodStatus{Phase: "Failed"} }), only},
		"one that is going":       {pod(deleted(now)), whole},
		"one that should be gone": {pod(deleted(now.Add(-2 * time.Second))), only},
		"one with devices": {pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = &corev1.ResourceRequirements{
				Requests: quantities("example.com/gpu", "2"), Limits: quantities("example.com/gpu", "2"),
			}
		}), "count/pods=1,pods=1,requests.example.com/gpu=2"},
		"a claim": {claim(), claims + "fast.storageclass.storage.k8s.io/persistentvolumeclaims=1," +
			"fast.storageclass.storage.k8s.io/requests.storage=2,persistentvolumeclaims=1,requests.storage=2"},
		"a claim that was given more": {claim(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName = nil
			c.Status = &corev1.PersistentVolumeClaimStatus{AllocatedResources: quantities("storage", "5")}
		}), claims + "persistentvolumeclaims=1,requests.storage=5"},
		"a service": {service("ClusterIP", nil),
			"count/services=1,services=1,services.loadbalancers=0,services.nodeports=0"},
		"a service on nodes": {service("NodePort", nil),
			"count/services=1,services=1,services.loadbalancers=0,services.nodeports=2"},
		"a balanced service": {service("LoadBalancer", nil),
			"count/services=1,services=1,services.loadbalancers=1,services.nodeports=2"},
		"one that wants no ports but one": {service("LoadBalancer", new(bool)),
			"count/services=1,services=1,services.loadbalancers=1,services.nodeports=1"},
		"a secret":     {&corev1.Secret{}, "count/secrets=1,secrets=1"},
		"a deployment": {&appsv1.Deployment{}, "count/deployments.apps=1"},
	} {
		u := quota.Of(c.o, now)
		if got := u.Named(u.Names()); got != c.want {
			t.Errorf("%s:\n  %s, want\n  %s", name, got, c.want)
		}
	}
}

// A quota counts what it limits, and only what is in all of its scopes. spec: OBJ-2
func TestCounts(t *testing.T) {
	spec := func(hard string, change ...func(*corev1.ResourceQuotaSpec)) *corev1.ResourceQuotaSpec {
		s := &corev1.ResourceQuotaSpec{Hard: quantities(hard, "1")}
		for _, f := range change {
			f(s)
		}
		return s
	}
	in := func(scopes ...string) func(*corev1.ResourceQuotaSpec) {
		return func(s *corev1.ResourceQuotaSpec) { s.Scopes = scopes }
	}
	class := func(scope, operator string, values ...string) func(*corev1.ResourceQuotaSpec) {
		return func(s *corev1.ResourceQuotaSpec) {
			s.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []*corev1.ScopedResourceSelectorRequirement{{
				ScopeName: scope, Operator: operator, Values: values,
			}}}
		}
	}
	high := pod(func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" })
	short := pod(func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = proto.Int64(1) })
	idle := pod(func(p *corev1.Pod) { p.Spec.Containers[0].Resources = nil })
	near := pod(func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{{Namespaces: []string{"other"}}},
		}}
	})
	classes := class(quota.VolumeAttributesClass, quota.Exists)
	gold := claim(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeAttributesClassName = proto.String("gold")
	})
	for name, c := range map[string]struct {
		spec *corev1.ResourceQuotaSpec
		o    object.Object
		want bool
	}{
		"pods":                        {spec("pods"), pod(), true},
		"a limit of pods":             {spec("limits.cpu"), pod(), true},
		"by number":                   {spec("count/pods"), pod(), true},
		"by the number of others":     {spec("count/secrets"), pod(), false},
		"a resource of others":        {spec("services"), pod(), false},
		"huge pages":                  {spec("hugepages-2Mi"), pod(), true},
		"devices":                     {spec("requests.example.com/gpu"), pod(), true},
		"devices, not as requests":    {spec("example.com/gpu"), pod(), false},
		"of a class":                  {spec("fast.storageclass.storage.k8s.io/requests.storage"), claim(), true},
		"with a deadline":             {spec("pods", in(quota.Terminating)), short, true},
		"without a deadline":          {spec("pods", in(quota.Terminating)), pod(), false},
		"two scopes":                  {spec("pods", in(quota.Terminating, quota.NotBestEffort)), short, true},
		"one of two scopes":           {spec("pods", in(quota.Terminating, quota.BestEffort)), short, false},
		"asks for nothing":            {spec("pods", in(quota.BestEffort)), idle, true},
		"asks for something":          {spec("pods", in(quota.BestEffort)), pod(), false},
		"of the class":                {spec("pods", class(quota.PriorityClass, quota.In, "high")), high, true},
		"of another class":            {spec("pods", class(quota.PriorityClass, quota.In, "low")), high, false},
		"not of the class":            {spec("pods", class(quota.PriorityClass, quota.NotIn, "high")), pod(), true},
		"of any class":                {spec("pods", class(quota.PriorityClass, quota.Exists)), pod(), false},
		"of no class":                 {spec("pods", class(quota.PriorityClass, quota.DoesNotExist)), pod(), true},
		"an operator that is none":    {spec("pods", class(quota.PriorityClass, "Has")), high, false},
		"a scope that is none":        {spec("pods", in("Other")), pod(), false},
		"near pods of others":         {spec("pods", in(quota.CrossNamespaceAffinity)), near, true},
		"near nobody":                 {spec("pods", in(quota.CrossNamespaceAffinity)), pod(), false},
		"claims with attributes":      {spec("requests.storage", classes), gold, true},
		"claims without":              {spec("requests.storage", classes), claim(), false},
		"claims in a scope of pods":   {spec("requests.storage", in(quota.BestEffort)), claim(), false},
		"what is in no scope at all":  {spec("secrets", in(quota.NotTerminating)), &corev1.Secret{}, false},
		"events, which nobody counts": {spec("pods"), &corev1.Event{}, false},
	} {
		if got := quota.Counts(c.spec, c.o); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if quota.Counted(corev1.EventKind) || quota.Counted(corev1.NodeKind) || !quota.Counted(appsv1.DeploymentKind) {
		t.Error("what is counted: events and nodes are not, deployments are")
	}
}

// Who limits cpu or memory has every container say how much it needs.
func TestUnsaid(t *testing.T) {
	two := pod(func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, &corev1.Container{Name: "b"}, &corev1.Container{Name: "a"})
		p.Spec.InitContainers = []*corev1.Container{{Name: "a"}}
	})
	whole := pod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = nil
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: quantities("cpu", "1")}
	})
	for name, c := range map[string]struct {
		o    object.Object
		hard []string
		want string
	}{
		"all is said":    {pod(), []string{"cpu", "1", "limits.memory", "1"}, ""},
		"no limit":       {pod(), []string{"limits.cpu", "1"}, "limits.cpu for: main"},
		"of two":         {two, []string{"memory", "1", "cpu", "1"}, "cpu for: a,b; memory for: a,b"},
		"need not":       {two, []string{"pods", "1", "requests.example.com/gpu", "1"}, ""},
		"for the whole":  {whole, []string{"requests.cpu", "1", "limits.memory", "1"}, ""},
		"not of a claim": {claim(), []string{"cpu", "1"}, ""},
	} {
		if got := quota.Unsaid(quota.UsageOf(quantities(c.hard...)), c.o); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Sums share nothing with what was added: a quota's limits stay as they are.
func TestUsage(t *testing.T) {
	large := "123456789012345678901234567890"
	sum := quota.Usage{}
	part := quota.UsageOf(quantities("a", large, "b", "1", "c", "no number"))
	sum.Add(part)
	sum.Add(part)
	if got := sum.Named(sum.Names()); got != "a=246913578024691357802469135780,b=2" {
		t.Errorf("twice: %s", got)
	}
	if got := part.Named(part.Names()); got != "a="+large+",b=1" {
		t.Errorf("adding has changed what was added: %s", got)
	}
	sum.Sub(part)
	if !sum.Equal(part) || !part.Equal(sum) {
		t.Errorf("taken away again: %s", sum.Named(sum.Names()))
	}
	more := quota.UsageOf(quantities("a", large, "b", "3", "d", "0"))
	if got := more.Beyond(part); got.Named(got.Names()) != "b=2" {
		t.Errorf("beyond: %s", got.Named(got.Names()))
	}
	if got := more.Above(part); !slices.Equal(got, []string{"b"}) {
		t.Errorf("above: %v", got)
	}
	if got := slices.Sorted(maps.Keys(more.Only(part))); strings.Join(got, ",") != "a,b" {
		t.Errorf("only: %v", got)
	}
}
