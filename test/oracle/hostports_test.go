package oracle

import (
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"

	"monoplane.dev/rules/hostports"
)

// publishing returns a pod whose containers of all kinds have ports, some of which are the node's.
func publishing(r *rand.Rand) *v1.Pod {
	k := minimal()
	list := func(n int) []v1.Container {
		var all []v1.Container
		for range n {
			c := v1.Container{Name: "c"}
			if r.IntN(2) == 0 {
				policy := pick(r, []string{"Always", "Always", "OnFailure", "Never", ""})
				c.RestartPolicy = ptr(v1.ContainerRestartPolicy(policy))
			}
			for range r.IntN(3) {
				c.Ports = append(c.Ports, v1.ContainerPort{
					ContainerPort: 1, HostPort: pick(r, []int32{-1, 0, 80, 81}),
					Protocol: pick(r, []v1.Protocol{"", "TCP", "UDP", "SCTP"}),
					HostIP:   pick(r, []string{"", "0.0.0.0", "10.0.0.1", "10.0.0.2", "fd00::1"}),
				})
			}
			all = append(all, c)
		}
		return all
	}
	k.Spec.InitContainers, k.Spec.Containers = list(r.IntN(3)), list(1+r.IntN(2))
	return k
}

// wantedPorts are those of the node that a pod wants, and whether another one is in the way.
type wantedPorts struct {
	Ports    []v1.ContainerPort
	Conflict bool
}

// The address "::" is left out: Monoplane takes it for all addresses.
//
// spec: SCHED-4, LIFE-12, INIT-4
func TestPodsTakeTheSamePorts(t *testing.T) {
	r := random(t)
	conflicts := 0
	for range *count {
		one, other := publishing(r), publishing(r)
		theirs := ask[wantedPorts](t, "host-ports", one, other)
		want := theirs.Conflict
		wanted := hostports.Of(ourPod(t, one).Spec)
		if len(theirs.Ports) != len(wanted) {
			t.Fatalf("the ports of %v\nare %v for Kubernetes, %v for Monoplane", one.Spec, theirs.Ports, wanted)
		}
		if _, got := hostports.Taken(wanted, hostports.Of(ourPod(t, other).Spec)); got != want {
			t.Fatalf("pod %v\nand %v\nconflict: %v for Kubernetes, %v for Monoplane", one.Spec, other.Spec, want, got)
		}
		if want {
			conflicts++
		}
	}
	if conflicts < *count/20 || conflicts > *count*19/20 {
		t.Errorf("%d of %d conflicted", conflicts, *count)
	}
}
