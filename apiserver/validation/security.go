package validation

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1 "monoplane.dev/api/core/v1"
)

const (
	osLinux   = "linux"
	osWindows = "windows"
)

// podSecurity checks the security context of the pod (SEC-1). Windows options are refused by their
// support option.
func (v *pod) podSecurity(p *fieldPath) {
	sc := v.spec.GetSecurityContext()
	if v.spec.GetShareProcessNamespace() && v.spec.GetHostPID() {
		v.invalidValue(p.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	if sc == nil {
		return
	}
	v.id(p.Child("fsGroup"), sc.FsGroup, validation.IsValidGroupID)
	v.id(p.Child("runAsUser"), sc.RunAsUser, validation.IsValidUserID)
	v.id(p.Child("runAsGroup"), sc.RunAsGroup, validation.IsValidGroupID)
	for i, g := range sc.GetSupplementalGroups() {
		v.id(p.Child("supplementalGroups").Index(i), &g, validation.IsValidGroupID)
	}
	v.sysctls(p.Child("sysctls"), sc.GetSysctls())
	v.optionalOneOf(p.Child("fsGroupChangePolicy"), sc.FsGroupChangePolicy, "Always", "OnRootMismatch")
	v.seccomp(p.Child("seccompProfile"), sc.GetSeccompProfile())
	v.appArmor(p.Child("appArmorProfile"), sc.GetAppArmorProfile())
	v.optionalOneOf(p.Child("supplementalGroupsPolicy"), sc.SupplementalGroupsPolicy, "Merge", "Strict")
	v.optionalOneOf(p.Child("seLinuxChangePolicy"), sc.SeLinuxChangePolicy, "Recursive")
}

func (f *faults) optionalOneOf(p *fieldPath, value *string, supported ...string) {
	if value != nil {
		f.oneOf(p, *value, supported...)
	}
}

func (f *faults) id(p *fieldPath, id *int64, wrong func(int64) []string) {
	if id != nil {
		f.invalidValue(p, *id, wrong(*id)...)
	}
}

// securityContext checks the security context of one container (SEC-1).
func (v *pod) securityContext(p *fieldPath, sc *corev1.SecurityContext) {
	if sc == nil {
		return
	}
	v.id(p.Child("runAsUser"), sc.RunAsUser, validation.IsValidUserID)
	v.id(p.Child("runAsGroup"), sc.RunAsGroup, validation.IsValidGroupID)
	v.optionalOneOf(p.Child("procMount"), sc.ProcMount, "Default", "Unmasked")
	if sc.GetProcMount() == "Unmasked" && v.sharesUsers() {
		v.invalid(p.Child("procMount"), sc.GetProcMount(), "`hostUsers` must be false to use `Unmasked`")
	}
	v.seccomp(p.Child("seccompProfile"), sc.GetSeccompProfile())
	if sc.AllowPrivilegeEscalation != nil && !sc.GetAllowPrivilegeEscalation() {
		if sc.GetPrivileged() {
			v.invalidValue(p, field.OmitValueType{}, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
		}
		for _, c := range sc.GetCapabilities().GetAdd() {
			if c == "CAP_SYS_ADMIN" {
				v.invalidValue(p, field.OmitValueType{},
					"cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
			}
		}
	}
	v.appArmor(p.Child("appArmorProfile"), sc.GetAppArmorProfile())
}

// sharesUsers says whether the pod lives in the node's user namespace (USER-1).
func (v *pod) sharesUsers() bool { return v.spec.HostUsers == nil || v.spec.GetHostUsers() }

// userNamespace checks that a pod with users of its own shares nothing else with the node (USER-1).
func (v *pod) userNamespace(p *fieldPath) {
	if v.sharesUsers() {
		return
	}
	const when = "when `hostUsers` is false"
	for _, x := range []struct {
		name string
		set  bool
	}{{"hostNetwork", v.spec.GetHostNetwork()}, {"HostPID", v.spec.GetHostPID()}, {"HostIPC", v.spec.GetHostIPC()}} {
		if x.set {
			v.forbidden(p.Child(x.name), when)
		}
	}
	for c, at := range v.each {
		if len(c.GetVolumeDevices()) > 0 {
			v.forbidden(at.Child("volumeDevices"), when)
		}
	}
}

func (f *faults) seccomp(p *fieldPath, s *corev1.SeccompProfile) {
	if s == nil {
		return
	}
	if s.GetType() == "" {
		f.required(p.Child("type"), "type is required when seccompProfile is set")
	} else {
		f.oneOf(p.Child("type"), s.GetType(), "Localhost", "RuntimeDefault", "Unconfined")
	}
	switch at := p.Child("localhostProfile"); {
	case s.GetType() != "Localhost":
		if s.LocalhostProfile != nil {
			f.invalid(at, s.GetLocalhostProfile(), "can only be set when seccomp type is Localhost")
		}
	case s.LocalhostProfile == nil:
		f.required(at, "must be set when seccomp type is Localhost")
	default:
		f.inside(at, s.GetLocalhostProfile())
	}
}

const maxProfilePath = 4095

func (f *faults) appArmor(p *fieldPath, a *corev1.AppArmorProfile) {
	if a == nil {
		return
	}
	at := p.Child("localhostProfile")
	switch a.GetType() {
	case "Localhost":
		name := a.GetLocalhostProfile()
		if trimmed := strings.TrimSpace(name); trimmed != name {
			f.invalid(at, name, "must not be padded with whitespace")
		} else if trimmed == "" {
			f.required(at, "must be set when AppArmor type is Localhost")
		}
		if len(name) > maxProfilePath {
			f.tooLong(at, maxProfilePath)
		}
	case "RuntimeDefault", "Unconfined":
		if a.LocalhostProfile != nil {
			f.invalid(at, a.GetLocalhostProfile(), "can only be set when AppArmor type is Localhost")
		}
	case "":
		f.required(p.Child("type"), "type is required when appArmorProfile is set")
	default:
		f.oneOf(p.Child("type"), a.GetType(), "Localhost", "RuntimeDefault", "Unconfined")
	}
}

const (
	maxSysctl     = 253
	sysctlSegment = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
)

var sysctlName = regexp.MustCompile("^(" + sysctlSegment + `[\./])*` + sysctlSegment + "$")

func (v *pod) sysctls(p *fieldPath, list []*corev1.Sysctl) {
	if len(list) == 0 {
		return
	}
	seen := map[string]bool{}
	for i, s := range list {
		at, name := p.Index(i).Child("name"), s.GetName()
		switch {
		case name == "":
			v.required(at, "")
		case len(name) > maxSysctl || !sysctlName.MatchString(name):
			v.invalid(at, name, fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctl, sysctlName))
		case seen[name]:
			v.duplicate(at, name)
		}
		seen[name] = true
		switch ns := sysctlNamespace(name); {
		case ns == "net" && v.spec.GetHostNetwork():
			v.invalid(at, name, "may not be specified when 'hostNetwork' is true")
		case ns == "ipc" && v.spec.GetHostIPC():
			v.invalid(at, name, "may not be specified when 'hostIPC' is true")
		}
	}
}

// sysctlNamespace returns which namespace of the kernel a sysctl belongs to: "net", "ipc" or "" for none.
// Names may be written with dots or slashes; the first separator decides which of them separates.
func sysctlNamespace(name string) string {
	if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '/' {
		name = strings.Map(func(r rune) rune {
			switch r {
			case '/':
				return '.'
			case '.':
				return '/'
			}
			return r
		}, name)
	}
	name, _, _ = strings.Cut(name, "*")
	switch name {
	case "kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced", "kernel.shm",
		"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.msg":
		return "ipc"
	}
	switch {
	case strings.HasPrefix(name, "net."):
		return "net"
	case strings.HasPrefix(name, "fs.mqueue."):
		return "ipc"
	}
	return ""
}
