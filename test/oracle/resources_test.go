package oracle

import (
	"fmt"
	"math/rand/v2"
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

// resizing is a pod of which the node has said what it has set aside and what is in force.
func resizing(r *rand.Rand) *v1.Pod {
	k := asking(r)
	status := func(list []v1.Container) (out []v1.ContainerStatus) {
		for i := range list {
			list[i].Name = fmt.Sprint("c", r.Uint64())
			s := v1.ContainerStatus{Name: list[i].Name, AllocatedResources: asks(r), Resources: ptr(requirements(r))}
			switch r.IntN(4) {
			case 0:
				s.Resources = nil
			case 1:
				s.AllocatedResources, s.Resources = list[i].Resources.Requests, list[i].Resources.DeepCopy()
			}
			out = append(out, s)
		}
		r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		return out
	}
	k.Status.ContainerStatuses, k.Status.InitContainerStatuses = status(k.Spec.Containers), status(k.Spec.InitContainers)
	if r.IntN(2) == 0 {
		k.Status.Resources, k.Status.AllocatedResources = ptr(requirements(r)), asks(r)
	}
	if reason := pick(r, []string{"", "Deferred", "Infeasible"}); reason != "" {
		k.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: reason}}
	}
	return k
}

// spec: INIT-3, OBJ-10
func TestResizedPodsHoldTheSame(t *testing.T) {
	r := random(t)
	changed := 0
	for range *count {
		k := resizing(r)
		p := ourPod(t, k)
		theirs := helper.PodRequests(k, helper.PodResourcesOptions{
			UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
		})
		spec := resources.Held(p)
		ours := resources.Requests(spec)
		same := len(theirs) == len(ours)
		for _, a := range ours {
			q, ok := theirs[v1.ResourceName(a.Name)]
			same = same && ok && q.Cmp(a.Quantity) == 0
		}
		if !same {
			t.Fatalf("pod %v\n%v\nKubernetes %v\nMonoplane  %v", k.Spec, k.Status, theirs, ours)
		}
		if spec != p.Spec {
			changed++
		}
	}
	if *count >= 100 && (changed < *count/4 || changed == *count) {
		t.Errorf("%d of %d were being resized", changed, *count)
	}
}
