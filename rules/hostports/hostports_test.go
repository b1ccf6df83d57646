package hostports_test

import (
	"slices"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/hostports"
	"monoplane.dev/rules/initcontainer"
)

func container(policy string, ports ...*corev1.ContainerPort) *corev1.Container {
	c := &corev1.Container{Ports: ports}
	if policy != "" {
		c.RestartPolicy = &policy
	}
	return c
}

func port(number int32, protocol, ip string) *corev1.ContainerPort {
	return &corev1.ContainerPort{ContainerPort: 1, HostPort: number, Protocol: protocol, HostIP: ip}
}

// spec: SCHED-4, INIT-4
func TestOf(t *testing.T) {
	got := hostports.Of(&corev1.PodSpec{
		InitContainers: []*corev1.Container{
			container("", port(1, "TCP", "")), container("OnFailure", port(2, "TCP", "")),
			container(initcontainer.Always, port(3, "", "::")),
		},
		Containers: []*corev1.Container{
			container("", port(0, "TCP", ""), port(4, "UDP", "10.0.0.1")),
			container("Never", port(-1, "", ""), port(5, "", "")),
		},
	})
	want := []hostports.Port{
		{IP: "10.0.0.1", Protocol: "UDP", Number: 4}, {IP: "0.0.0.0", Protocol: "TCP", Number: 5},
		{IP: "0.0.0.0", Protocol: "TCP", Number: 3},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	plain := &corev1.PodSpec{Containers: []*corev1.Container{container("", port(0, "", ""))}}
	if hostports.Of(nil) != nil || hostports.Of(plain) != nil {
		t.Error("a pod without host ports takes some")
	}
}

// spec: SCHED-4, LIFE-12
func TestTaken(t *testing.T) {
	http := hostports.Port{IP: hostports.All, Protocol: "TCP", Number: 80}
	one := hostports.Port{IP: "10.0.0.1", Protocol: "TCP", Number: 80}
	for _, c := range []struct {
		name string
		port hostports.Port
		all  bool
		one  bool
	}{
		{"all addresses", http, true, true},
		{"the same address", one, true, true},
		{"another address", hostports.Port{IP: "10.0.0.2", Protocol: "TCP", Number: 80}, true, false},
		{"another protocol", hostports.Port{IP: "10.0.0.1", Protocol: "UDP", Number: 80}, false, false},
		{"another port", hostports.Port{IP: "10.0.0.1", Protocol: "TCP", Number: 81}, false, false},
	} {
		other := hostports.Port{IP: hostports.All, Protocol: "SCTP", Number: 9}
		for _, k := range []struct {
			taken hostports.Port
			want  bool
		}{{http, c.all}, {one, c.one}} {
			got, ok := hostports.Taken([]hostports.Port{other, c.port}, []hostports.Port{{}, k.taken})
			if ok != k.want || ok && got != c.port {
				t.Errorf("%s beside %v: %v, %v, want %v", c.name, k.taken, got, ok, k.want)
			}
			if back := k.taken.Conflicts(c.port); back != k.want {
				t.Errorf("%v beside %s: %v, want %v", k.taken, c.name, back, k.want)
			}
		}
	}
}
