// Package sysctls has the rules for the kernel parameters of pods: how their names are written, which is the API's to
// check, and which ones a node lets pods set, which its agent decides (SEC-1).
//
// It guarantees kubelets' answers, in kubelets' words; test/oracle compares them over random pods. It knows nothing of
// values, nor of which parameters a kernel has: a runtime may refuse what is let through here.
package sysctls

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
)

const (
	// MaxLength is how long a name may be.
	MaxLength = 253
	// Segment matches a part of a name; dots or slashes are between the parts.
	Segment = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"

	pattern = "^(" + Segment + `[\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]$`
)

// Dotted returns a name with dots between its parts. Names may be written with slashes as well; what comes first in
// one, a dot or a slash, is what separates its parts, and the other one is part of the name of a link, such as eth0.5.
func Dotted(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '.' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}

// Namespace is what a parameter belongs to that each pod has of its own, unless it shares that of its node.
type Namespace string

// The namespaces, as kubelets write them. Unknown is that of all other parameters: they are the machine's.
const (
	Unknown Namespace = ""
	IPC     Namespace = "IPC"
	Net     Namespace = "Net"
)

// NamespaceOf returns the one that a parameter belongs to, or all whose names begin like a name with an asterisk.
func NamespaceOf(name string) Namespace {
	name, _, _ = strings.Cut(Dotted(name), "*")
	switch name {
	case "kernel.sem", "kernel.shm", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
		"kernel.msg", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni":
		return IPC
	}
	switch {
	case strings.HasPrefix(name, "net."):
		return Net
	case strings.HasPrefix(name, "fs.mqueue."):
		return IPC
	}
	return Unknown
}

// safe are the parameters by which no pod affects another one, and the Linux since which each belongs to a namespace.
// Before, it is the machine's.
var safe = [...]struct{ name, since string }{
	{"kernel.shm_rmid_forced", ""},
	{"net.ipv4.ip_local_port_range", ""},
	{"net.ipv4.tcp_syncookies", ""},
	{"net.ipv4.ping_group_range", ""},
	{"net.ipv4.ip_unprivileged_port_start", ""},
	{"net.ipv4.ip_local_reserved_ports", "3.16"},
	{"net.ipv4.tcp_keepalive_time", "4.5"},
	{"net.ipv4.tcp_fin_timeout", "4.6"},
	{"net.ipv4.tcp_keepalive_intvl", "4.5"},
	{"net.ipv4.tcp_keepalive_probes", "4.5"},
	{"net.ipv4.tcp_rmem", "4.15"},
	{"net.ipv4.tcp_wmem", "4.15"},
}

// olderThan tells whether a kernel, such as 6.1.0-18-amd64, comes before a version. That of a simulated machine, which
// says nothing, does not.
func olderThan(kernel, version string) bool {
	have, haveOK := number(kernel)
	want, wantOK := number(version)
	return haveOK && wantOK && have < want
}

func number(version string) (n int, ok bool) {
	var major, minor uint16
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return int(major)<<16 | int(minor), err == nil
}

// Allowed are the parameters that a node lets pods set; the zero value has the safe ones.
type Allowed struct {
	kernel string
	unsafe []string // with dots, and perhaps with an asterisk at the end
}

// Allow returns the safe parameters of a kernel, whose release is given, and the unsafe ones that are named: by their
// names, or by what they begin with and an asterisk. The error says which of the names cannot be allowed, and why.
func Allow(kernel string, unsafe []string) (Allowed, error) {
	a := Allowed{kernel: kernel}
	if len(unsafe) == 0 {
		return a, nil
	}
	valid := regexp.MustCompile(pattern)
	var errs []error
	for _, name := range unsafe {
		switch {
		case len(name) > MaxLength || !valid.MatchString(name):
			errs = append(errs, fmt.Errorf("the sysctl %q cannot be allowed: it must have at most %d characters and match %s",
				name, MaxLength, pattern))
		case NamespaceOf(name) == Unknown:
			errs = append(errs, fmt.Errorf("the sysctl %q cannot be allowed: it is not known to be a pod's own, other than "+
				"kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.* and net.*", name))
		default:
			a.unsafe = append(a.unsafe, Dotted(name))
		}
	}
	return a, errors.Join(errs...)
}

// Check returns why a pod is not to run: it sets a parameter that is not allowed, or one of the node's.
func (a Allowed) Check(spec *corev1.PodSpec) error {
	for _, s := range spec.GetSecurityContext().GetSysctls() {
		name := Dotted(s.GetName())
		switch ns := a.find(name); {
		case ns == Unknown:
			return fmt.Errorf("forbidden sysctl: %q not allowlisted", name)
		case ns == Net && spec.GetHostNetwork(), ns == IPC && spec.GetHostIPC():
			return fmt.Errorf("forbidden sysctl: %q not allowed with host %s enabled", name, ns)
		}
	}
	return nil
}

// find returns the namespace of a parameter that is allowed, Unknown for others.
func (a Allowed) find(name string) Namespace {
	for _, s := range safe {
		if name == s.name && !olderThan(a.kernel, s.since) {
			return NamespaceOf(name)
		}
	}
	for _, allowed := range a.unsafe {
		beginning, many := strings.CutSuffix(allowed, "*")
		if name == allowed || many && strings.HasPrefix(name, beginning) {
			return NamespaceOf(allowed)
		}
	}
	return Unknown
}
