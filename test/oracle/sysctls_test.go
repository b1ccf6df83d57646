package oracle

import (
	"math/rand/v2"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"monoplane.dev/rules/sysctls"
)

// parameter returns a name of a sysctl, or a pattern, or something like it.
func parameter(r *rand.Rand) string {
	if r.IntN(2) == 0 {
		return pick(r, []string{
			"net.ipv4.tcp_syncookies", "net/ipv4/tcp_rmem", "net.core.somaxconn", "net.core.*", "net/ipv4/*", "net.*",
			"kernel.sem", "kernel/shm_rmid_forced", "kernel.shmmax", "kernel.shm_next_id", "kernel.shm*", "kernel/shm*",
			"kernel.msgmax", "kernel.msg*", "fs.mqueue.msg_max", "fs.mqueue.*", "vm.swappiness",
		})
	}
	var name strings.Builder
	name.WriteString(pick(r, []string{"", "net.", "net/", "kernel.", "kernel/", "fs.", "fs.mqueue.", "fs/mqueue/"}))
	for i := range 1 + r.IntN(3) {
		if i > 0 {
			name.WriteString(pick(r, []string{".", ".", "/"}))
		}
		name.WriteString(pick(r, []string{
			"net", "ipv4", "core", "somaxconn", "sem", "shm", "shmall", "shmmax", "shmmni", "shm_x", "msg", "msgmax",
			"msgmnb", "msgmni", "msg_x", "mqueue", "a-b", "-a", "A", "", " ", "*", "*", "a*", "shm*", "sem*",
		}))
	}
	return name.String()
}

// Kubelets' safe list is that of the kernel that the test runs on, which is taken not to be older than Linux 4.15.
//
// spec: SEC-1
func TestNodesAllowTheSameSysctls(t *testing.T) {
	r := random(t)
	invalid, refused, allowed := 0, 0, 0
	for range *count {
		var unsafe []string
		for range r.IntN(3) {
			unsafe = append(unsafe, parameter(r))
		}
		want := ask[string](t, "allowed-sysctls", unsafe)
		node, err := sysctls.Allow("4.15", unsafe)
		if (err == nil) != (want == "") {
			t.Fatalf("with %q allowed: %q for Kubernetes, %v for Monoplane", unsafe, want, err)
		}
		if want != "" {
			invalid++
			continue
		}
		k := minimal()
		k.Spec.HostNetwork, k.Spec.HostIPC = r.IntN(4) == 0, r.IntN(4) == 0
		k.Spec.SecurityContext = &v1.PodSecurityContext{}
		for range r.IntN(3) {
			k.Spec.SecurityContext.Sysctls = append(k.Spec.SecurityContext.Sysctls, v1.Sysctl{Name: parameter(r)})
		}
		got := ""
		if err := node.Check(ourPod(t, k).Spec); err != nil {
			got = err.Error()
		}
		refusal := ask[string](t, "sysctls", unsafe, k)
		if refusal != got {
			t.Fatalf("with %q allowed, the pod %v:\n%s for Kubernetes\n%s for Monoplane", unsafe, k.Spec, refusal, got)
		}
		if refusal == "" {
			allowed++
		} else {
			refused++
		}
	}
	if few := *count / 20; invalid < few || refused < few || allowed < few {
		t.Errorf("of %d, %d lists were wrong, %d pods refused and %d allowed", *count, invalid, refused, allowed)
	}
}
