package sysctls_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/sysctls"
)

func allow(t *testing.T, kernel string, unsafe ...string) sysctls.Allowed {
	t.Helper()
	a, err := sysctls.Allow(kernel, unsafe)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func setting(names ...string) *corev1.PodSpec {
	s := &corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{}}
	for _, name := range names {
		s.SecurityContext.Sysctls = append(s.SecurityContext.Sysctls, &corev1.Sysctl{Name: name, Value: "1"})
	}
	return s
}

// spec: SEC-1
func TestNamesHaveDots(t *testing.T) {
	for name, want := range map[string]string{
		"": "", "a": "a", "net.core.somaxconn": "net.core.somaxconn", "net/core/somaxconn": "net.core.somaxconn",
		"net.ipv4.conf.eth0/5.rp_filter": "net.ipv4.conf.eth0/5.rp_filter",
		"net/ipv4/conf/eth0.5/rp_filter": "net.ipv4.conf.eth0/5.rp_filter",
	} {
		if got := sysctls.Dotted(name); got != want {
			t.Errorf("%q is %q with dots, want %q", name, got, want)
		}
	}
}

// A node lets pods set what concerns them alone, and what it was told, in their own namespaces. It refuses others in
// kubelets' words. spec: SEC-1
func TestWhatPodsMaySet(t *testing.T) {
	for _, c := range []struct {
		set              string
		hostNet, hostIPC bool
		want             string
	}{
		{set: "kernel.shm_rmid_forced"},
		{set: "kernel/shm_rmid_forced", hostNet: true},
		{set: "kernel/shm_rmid_forced", hostIPC: true, want: `"kernel.shm_rmid_forced" not allowed with host IPC enabled`},
		{set: "net.ipv4.ip_local_port_range"},
		{set: "net.ipv4.tcp_wmem", hostIPC: true},
		{set: "net.ipv4.tcp_wmem", hostNet: true, want: `"net.ipv4.tcp_wmem" not allowed with host Net enabled`},
		{set: "net.ipv4.tcp_wmem.more", want: `"net.ipv4.tcp_wmem.more" not allowlisted`},

		{set: "net.core.somaxconn"},
		{set: "net/core/somaxconn"},
		{set: "net.core.somaxconn", hostNet: true, want: `"net.core.somaxconn" not allowed with host Net enabled`},
		{set: "net.core.rmem_max", want: `"net.core.rmem_max" not allowlisted`},
		{set: "net/core/rmem_max", want: `"net.core.rmem_max" not allowlisted`},
		{set: "net.ipv4.conf.eth0/5.rp_filter"},
		{set: "net/ipv4/conf/eth0.5/rp_filter"},
		{set: "net/ipv4/conf.eth0/rp_filter", want: `"net.ipv4.conf/eth0.rp_filter" not allowlisted`},

		{set: "kernel.msgmax"},
		{set: "kernel.msgmax", hostIPC: true, want: `"kernel.msgmax" not allowed with host IPC enabled`},
		{set: "kernel.msg_next_id"},
		{set: "kernel.msg_next_id", hostIPC: true, want: `"kernel.msg_next_id" not allowed with host IPC enabled`},
		{set: "kernel.sem"},
		{set: "fs.mqueue.msg_max"},
		{set: "fs.mqueue.msg_max", hostIPC: true, want: `"fs.mqueue.msg_max" not allowed with host IPC enabled`},
		{set: "kernel.shmmax", want: `"kernel.shmmax" not allowlisted`},
		{set: "vm.swappiness", want: `"vm.swappiness" not allowlisted`},
	} {
		a := allow(t, "6.1.0-18-amd64", "net.core.somaxconn", "net/ipv4/conf/*", "kernel.msg*", "kernel/sem",
			"fs.mqueue.*")
		spec := setting("net.ipv4.tcp_syncookies", c.set)
		if c.hostNet {
			spec = setting(c.set)
		}
		spec.HostNetwork, spec.HostIPC = c.hostNet, c.hostIPC
		got := ""
		if err := a.Check(spec); err != nil {
			got = err.Error()
		}
		if c.want != "" {
			c.want = "forbidden sysctl: " + c.want
		}
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if err := (sysctls.Allowed{}).Check(setting("kernel.shmmax")); err == nil {
		t.Error("what names nothing allows what is not safe")
	}
	if err := (sysctls.Allowed{}).Check(&corev1.PodSpec{}); err != nil {
		t.Errorf("a pod that sets nothing: %v", err)
	}
}

// A parameter that is the machine's on an older kernel is not safe there. spec: SEC-1
func TestOlderKernelsHaveFewerSafeOnes(t *testing.T) {
	all := []string{
		"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
		"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
		"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_rmem",
		"net.ipv4.tcp_wmem",
	}
	for kernel, want := range map[string]int{
		"3.15.9": 5, "3.16": 6, "4.4.302-generic": 6, "4.5.0": 9, "4.6": 10, "4.9.1": 10, "4.14.336": 10,
		"4.15.0-213-generic": 12, "5.4.0": 12, "6.18.44": 12, "simulated": 12, "": 12,
	} {
		a := allow(t, kernel)
		got := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return a.Check(setting(name)) != nil })
		if !slices.Equal(got, all[:want]) {
			t.Errorf("on Linux %q %v are safe, want %v", kernel, got, all[:want])
		}
	}
}

// What would be the machine's is never allowed, and each of the names that are wrong is told. spec: SEC-1
func TestWhatCannotBeAllowed(t *testing.T) {
	for name, says := range map[string]string{
		"": "match", " kernel.sem": "match", "kernel.msg* ": "match", "net.-": "match", "net.*.foo": "match",
		"net.*/foo": "match", "Net.core": "match", "net..core": "match", "net." + strings.Repeat("a", 250): "253 characters",
		"*": "known", "foo": "known", "foo*": "known", "net": "known", "net*": "known", "kernel.*": "known",
		"kernel.s*": "known", "kernel.shm_next_id": "known", "kernel.semaphore": "known", "fs.*": "known",
		"fs.mqueue": "known", "vm.swappiness": "known", "vm/swappiness": "known",
	} {
		_, err := sysctls.Allow("6.1", []string{"kernel.sem", name, "net.*"})
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", name, err, says)
		}
	}
	_, err := sysctls.Allow("6.1", []string{"vm.*", "kernel.sem", "foo"})
	if err == nil || !strings.Contains(err.Error(), `"vm.*" cannot`) || !strings.Contains(err.Error(), `"foo" cannot`) {
		t.Errorf("two wrong names: %v", err)
	}
}
