package apiserver_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
)

func quantities(pairs ...string) map[string]*metav1.Quantity {
	m := map[string]*metav1.Quantity{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &metav1.Quantity{String_: pairs[i+1]}
	}
	return m
}

func newQuota(name string, hard ...string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:     &corev1.ResourceQuotaSpec{Hard: quantities(hard...)},
	}
}

// sized is a pod whose container asks for something.
func sized(name string, requests, limits []string) *corev1.Pod {
	p := newPod(name)
	p.Spec.Containers[0].Resources = &corev1.ResourceRequirements{
		Requests: quantities(requests...), Limits: quantities(limits...),
	}
	return p
}

func (c *cluster) quota(q *corev1.ResourceQuota) {
	c.t.Helper()
	must(c.admin().ResourceQuotas.Create(ctx(c.t), &corev1rpc.CreateResourceQuotaRequest{Object: q}))(c.t)
}

// told is the message of an error, empty for none.
func told(err error) string {
	if err == nil {
		return ""
	}
	return apierrors.From(err).Status().GetMessage()
}

// What is created counts, what is deleted does not, and what a quota has no room for is refused in Kubernetes' words.
// spec: OBJ-2
func TestQuotas(t *testing.T) {
	c := start(t)
	admin := c.admin()
	c.quota(newQuota("few", "pods", "2", "requests.cpu", "1", "limits.memory", "1Gi", "count/configmaps", "1",
		"services.nodeports", "2", "requests.storage", "3Gi"))
	create := func(p *corev1.Pod, dry ...string) string {
		return told(second(admin.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p, DryRun: dry})))
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	const memory = "256Mi"
	expect("a pod that does not say", create(newPod("silent")),
		`pods "silent" is forbidden: failed quota: few: must specify limits.memory for: main; requests.cpu for: main`)
	expect("too large", create(sized("large", []string{"cpu", "1001m"}, []string{"memory", "2Gi"})),
		`pods "large" is forbidden: exceeded quota: few, requested: limits.memory=2Gi,requests.cpu=1001m, `+
			`used: limits.memory=0,requests.cpu=0, limited: limits.memory=1Gi,requests.cpu=1`)
	expect("dry run", create(sized("a", []string{"cpu", "1"}, []string{"memory", memory}), "All"), "")
	expect("the first", create(sized("a", []string{"cpu", "600m"}, []string{"memory", memory})), "")
	expect("no cpu left", create(sized("b", []string{"cpu", "600m"}, []string{"memory", memory})),
		`pods "b" is forbidden: exceeded quota: few, requested: requests.cpu=600m, used: requests.cpu=600m, `+
			`limited: requests.cpu=1`)
	expect("no cpu left for a dry run", create(sized("b", []string{"cpu", "600m"}, []string{"memory", memory}), "All"),
		`pods "b" is forbidden: exceeded quota: few, requested: requests.cpu=600m, used: requests.cpu=600m, `+
			`limited: requests.cpu=1`)
	expect("the second", create(sized("b", []string{"cpu", "400m"}, []string{"memory", memory})), "")
	expect("a third", create(sized("c", []string{"cpu", "0"}, []string{"memory", memory})),
		`pods "c" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2`)
	must(admin.Pods.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "a",
		GracePeriodSeconds: proto.Int64(0)}))(t)
	expect("in place of the first", create(sized("c", []string{"cpu", "600m"}, []string{"memory", memory})), "")

	resize := clone(must(admin.Pods.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "c"}))(t))
	resize.Spec.Containers[0].Resources.Requests["cpu"].String_ = "700m"
	expect("to grow", told(second(admin.Pods.UpdateResize(ctx(t), &corev1rpc.UpdatePodRequest{Object: resize}))),
		`pods "c" is forbidden: exceeded quota: few, requested: requests.cpu=100m, used: requests.cpu=1, limited: `+
			`requests.cpu=1`)

	config := func(name string) string {
		return told(second(admin.ConfigMaps.Create(ctx(t), &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{
			Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"}}})))
	}
	expect("a config map", config("a"), "")
	expect("another", config("b"), `configmaps "b" is forbidden: exceeded quota: few, requested: count/configmaps=1, `+
		`used: count/configmaps=1, limited: count/configmaps=1`)

	s := must(admin.Services.Create(ctx(t), &corev1rpc.CreateServiceRequest{Object: &corev1.Service{
		Metadata: &metav1.ObjectMeta{Name: "s", Namespace: "default"},
		Spec: &corev1.ServiceSpec{Type: "ClusterIP", Ports: []*corev1.ServicePort{
			{Name: "a", Port: 1}, {Name: "b", Port: 2}, {Name: "c", Port: 3}}},
	}}))(t)
	s = clone(s)
	s.Spec.Type = "NodePort"
	expect("a service of another type", told(second(admin.Services.Update(ctx(t),
		&corev1rpc.UpdateServiceRequest{Object: s}))),
		`services "s" is forbidden: exceeded quota: few, requested: services.nodeports=3, used: services.nodeports=0, `+
			`limited: services.nodeports=2`)
}

// A quota with scopes counts the pods that are in all of them, and no others; a pod that is moved into them counts as
// a new one. spec: OBJ-2
func TestScopedQuotas(t *testing.T) {
	c := start(t)
	admin := c.admin()
	must(admin.PriorityClasses.Create(ctx(t), &schedulingv1rpc.CreatePriorityClassRequest{
		Object: &schedulingv1.PriorityClass{Metadata: &metav1.ObjectMeta{Name: "high"}, Value: 1000}}))(t)
	scoped := func(name string, scopes ...string) *corev1.ResourceQuota {
		q := newQuota(name, "pods", "1")
		q.Spec.Scopes = scopes
		return q
	}
	c.quota(scoped("short", "Terminating"))
	c.quota(scoped("long", "NotTerminating", "BestEffort"))
	high := newQuota("high", "pods", "1")
	high.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []*corev1.ScopedResourceSelectorRequirement{
		{ScopeName: "PriorityClass", Operator: "In", Values: []string{"high"}}}}
	c.quota(high)

	asking := func(name string, change func(*corev1.PodSpec)) *corev1.Pod {
		p := sized(name, []string{"cpu", "1m"}, nil)
		change(p.Spec)
		return p
	}
	plain := func(*corev1.PodSpec) {}
	ends := func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = proto.Int64(60) }
	matters := func(s *corev1.PodSpec) { s.PriorityClassName = "high" }
	for _, row := range []struct {
		pod  *corev1.Pod
		full string // the quota that has no room; empty for none
	}{
		{asking("ends", ends), ""}, {asking("ends-too", ends), "short"},
		{newPod("best"), ""}, {newPod("best-too"), "long"},
		{asking("high", matters), ""}, {asking("high-too", matters), "high"},
		{asking("plain", plain), ""}, {asking("plain-too", plain), ""},
	} {
		want := ""
		if row.full != "" {
			want = fmt.Sprintf("pods %q is forbidden: exceeded quota: %s, requested: pods=1, used: pods=1, limited: pods=1",
				row.pod.Metadata.Name, row.full)
		}
		if got := told(second(admin.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: row.pod}))); got != want {
			t.Errorf("%s: %q, want %q", row.pod.Metadata.Name, got, want)
		}
	}
	moved := clone(must(admin.Pods.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "plain"}))(t))
	ends(moved.Spec)
	if got := told(second(admin.Pods.Update(ctx(t), &corev1rpc.UpdatePodRequest{Object: moved}))); got !=
		`pods "plain" is forbidden: exceeded quota: short, requested: pods=1, used: pods=1, limited: pods=1` {
		t.Errorf("a pod that is given a deadline: %q", got)
	}
}

// Whatever the order of creations, deletions, failures and takings of the turn by two servers, there is never more
// than a quota allows, and when all is quiet the last that fits is let in. spec: OBJ-2
func TestQuotasUnderRaces(t *testing.T) {
	t.Run("one server", func(t *testing.T) { raceForQuota(t, start(t), 24, 40) })
	t.Run("two servers", func(t *testing.T) { raceForQuota(t, startTwo(t), 8, 12) })
}

func raceForQuota(t *testing.T, c *cluster, clients, rounds int) {
	const room = 10
	c.quota(newQuota("a", "pods", fmt.Sprint(room), "requests.cpu", "5"))
	c.quota(newQuota("b", "count/pods", fmt.Sprint(room)))
	admin := c.admin()
	created := func(p *corev1.Pod) error {
		return second(admin.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p}))
	}
	seed := rand.Uint64()
	t.Log("seed", seed)
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			list, err := admin.Pods.List(ctx(t), &metav1.ListRequest{Namespace: "default"})
			if err != nil || len(list.Items) > room {
				t.Errorf("%d pods, %v", len(list.GetItems()), err)
				return
			}
		}
	})
	var all sync.WaitGroup
	for i := range clients {
		by, rng := c.admin(), rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			for round := range rounds {
				name := fmt.Sprintf("p-%d-%d", i, round)
				if rng.IntN(8) == 0 {
					name = "same" // others have it, and the creation fails
				}
				ctx, cancel := context.WithCancel(ctx(t))
				if rng.IntN(8) == 0 {
					cancel() // before, or while it is on its way
				}
				p := sized(name, []string{"cpu", "500m"}, nil)
				_, err := by.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Object: p})
				cancel()
				if err == nil && rng.IntN(5) > 0 {
					_, err = by.Pods.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "default", Name: name,
						GracePeriodSeconds: proto.Int64(0)})
				}
				switch code := apierrors.From(err); {
				case err == nil, apierrors.Is(err, apierrors.Forbidden), apierrors.Is(err, apierrors.AlreadyExists),
					apierrors.Is(err, apierrors.NotFound), ctx.Err() != nil:
				default:
					t.Errorf("%s: %v", name, code)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	watching.Wait()
	list := must(admin.Pods.List(ctx(t), &metav1.ListRequest{Namespace: "default"}))(t)
	for i := len(list.Items); i < room; i++ {
		if err := created(sized(fmt.Sprintf("rest-%d", i), []string{"cpu", "500m"}, nil)); err != nil {
			t.Fatalf("%d of %d: %v", i, room, err)
		}
	}
	if err := created(sized("more", []string{"cpu", "500m"}, nil)); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("one more: %v", err)
	}
}
