package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"

	"monoplane.dev/rules/resources"
	"monoplane.dev/scheduler/framework"
)

// spec: INIT-3
func TestPodsNeedTheSame(t *testing.T) {
	r := random(t)
	absent := v1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("200Mi")}
	var assumed resources.List
	for _, name := range []string{"cpu", "memory"} {
		assumed = append(assumed, resources.Amount{Name: name, Quantity: absent[v1.ResourceName(name)]})
	}
	for range *count {
		k := asking(r)
		spec := ourPod(t, k).Spec
		for _, c := range []struct {
			what   string
			theirs v1.ResourceList
			ours   resources.List
		}{
			{"requests", helper.PodRequests(k, helper.PodResourcesOptions{}), resources.Requests(spec)},
			{"with assumed ones", helper.PodRequests(k, helper.PodResourcesOptions{NonMissingContainerRequests: absent}),
				resources.AppendRequests(nil, spec, assumed)},
			{"of containers", helper.AggregateContainerRequests(k, helper.PodResourcesOptions{}),
				resources.ContainerRequests(spec)},
			{"limits of containers", helper.AggregateContainerLimits(k, helper.PodResourcesOptions{}),
				resources.ContainerLimits(spec)},
		} {
			same := len(c.theirs) == len(c.ours)
			for _, a := range c.ours {
				q, ok := c.theirs[v1.ResourceName(a.Name)]
				same = same && ok && q.Cmp(a.Quantity) == 0
			}
			if !same {
				t.Fatalf("pod %v\n%s\nKubernetes %v\nMonoplane  %v", k.Spec, c.what, c.theirs, c.ours)
			}
		}
		if want, got := helper.IsPodLevelRequestsSet(k), resources.ForWhole(spec); got != want {
			t.Fatalf("pod %v\nrequests for the whole: %v for Kubernetes, %v for Monoplane", k.Spec, want, got)
		}
	}
}

// The scheduler's sums, in whole units, are those of Kubernetes as long as they fit into 64 bits; beyond, ours are the
// largest number.
// spec: INIT-3, SCHED-4
func TestSchedulersCountTheSame(t *testing.T) {
	r := random(t)
	compared := 0
	for range *count {
		k := asking(r)
		got := framework.NewPodInfo(ourPod(t, k))
		for name, q := range helper.PodRequests(k, helper.PodResourcesOptions{}) {
			want := q.Value()
			if name == "cpu" {
				want = q.MilliValue()
			}
			if q.Cmp(resource.MustParse("1P")) > 0 {
				continue
			}
			compared++
			if n := got.Requests.Amount(string(name)); n != want {
				t.Fatalf("pod %v\n%s: %d by Kubernetes, %d by Monoplane", k.Spec, name, want, n)
			}
		}
	}
	if compared < *count/2 {
		t.Errorf("only %d amounts were compared", compared)
	}
}
