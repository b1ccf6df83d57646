package podspec

import (
	"fmt"
	"regexp"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/sysctls"
)

const (
	osLinux   = "linux"
	osWindows = "windows"
)

// podSecurity checks the security context of the pod (SEC-1).
func (v *Checker) podSecurity(p *validation.Path) {
	sc := v.spec.GetSecurityContext()
	if v.spec.GetShareProcessNamespace() && v.spec.GetHostPID() {
		v.InvalidValue(p.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	if sc == nil {
		return
	}
	v.id(p.Child("fsGroup"), sc.FsGroup, utilvalidation.IsValidGroupID)
	v.id(p.Child("runAsUser"), sc.RunAsUser, utilvalidation.IsValidUserID)
	v.id(p.Child("runAsGroup"), sc.RunAsGroup, utilvalidation.IsValidGroupID)
	for i, g := range sc.GetSupplementalGroups() {
		v.id(p.Child("supplementalGroups").Index(i), &g, utilvalidation.IsValidGroupID)
	}
	v.sysctls(p.Child("sysctls"), sc.GetSysctls())
	v.optionalOneOf(p.Child("fsGroupChangePolicy"), sc.FsGroupChangePolicy, "Always", "OnRootMismatch")
	v.seccomp(p.Child("seccompProfile"), sc.GetSeccompProfile())
	v.appArmor(p.Child("appArmorProfile"), sc.GetAppArmorProfile())
	v.optionalOneOf(p.Child("supplementalGroupsPolicy"), sc.SupplementalGroupsPolicy, "Merge", "Strict")
	v.optionalOneOf(p.Child("seLinuxChangePolicy"), sc.SeLinuxChangePolicy, "Recursive")
	v.windowsOptions(p.Child("windowsOptions"), sc.GetWindowsOptions())
}

func (f *faults) optionalOneOf(p *validation.Path, value *string, supported ...string) {
	if value != nil {
		f.OneOf(p, *value, supported...)
	}
}

func (f *faults) id(p *validation.Path, id *int64, wrong func(int64) []string) {
	if id != nil {
		f.InvalidValue(p, *id, wrong(*id)...)
	}
}

// securityContext checks the security context of one container (SEC-1).
func (v *Checker) securityContext(p *validation.Path, sc *corev1.SecurityContext) {
	if sc == nil {
		return
	}
	v.id(p.Child("runAsUser"), sc.RunAsUser, utilvalidation.IsValidUserID)
	v.id(p.Child("runAsGroup"), sc.RunAsGroup, utilvalidation.IsValidGroupID)
	v.optionalOneOf(p.Child("procMount"), sc.ProcMount, "Default", "Unmasked")
	if sc.GetProcMount() == "Unmasked" && v.sharesUsers() {
		v.Invalid(p.Child("procMount"), sc.GetProcMount(), "`hostUsers` must be false to use `Unmasked`")
	}
	v.seccomp(p.Child("seccompProfile"), sc.GetSeccompProfile())
	if sc.AllowPrivilegeEscalation != nil && !sc.GetAllowPrivilegeEscalation() {
		if sc.GetPrivileged() {
			v.InvalidValue(p, field.OmitValueType{}, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
		}
		for _, c := range sc.GetCapabilities().GetAdd() {
			if c == "CAP_SYS_ADMIN" {
				v.InvalidValue(p, field.OmitValueType{},
					"cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
			}
		}
	}
	v.windowsOptions(p.Child("windowsOptions"), sc.GetWindowsOptions())
	v.appArmor(p.Child("appArmorProfile"), sc.GetAppArmorProfile())
}

// sharesUsers says whether the pod lives in the node's user namespace (USER-1).
func (v *Checker) sharesUsers() bool { return v.spec.HostUsers == nil || v.spec.GetHostUsers() }

// userNamespace checks that a pod with users of its own shares nothing else with the node (USER-1).
func (v *Checker) userNamespace(p *validation.Path) {
	if v.sharesUsers() {
		return
	}
	const when = "when `hostUsers` is false"
	for _, x := range []struct {
		name string
		set  bool
	}{{"hostNetwork", v.spec.GetHostNetwork()}, {"HostPID", v.spec.GetHostPID()}, {"HostIPC", v.spec.GetHostIPC()}} {
		if x.set {
			v.Forbidden(p.Child(x.name), when)
		}
	}
	for c, at := range v.each {
		if len(c.GetVolumeDevices()) > 0 {
			v.Forbidden(at.Child("volumeDevices"), when)
		}
	}
}

func (f *faults) seccomp(p *validation.Path, s *corev1.SeccompProfile) {
	if s == nil {
		return
	}
	if s.GetType() == "" {
		f.Required(p.Child("type"), "type is required when seccompProfile is set")
	} else {
		f.OneOf(p.Child("type"), s.GetType(), "Localhost", "RuntimeDefault", "Unconfined")
	}
	switch at := p.Child("localhostProfile"); {
	case s.GetType() != "Localhost":
		if s.LocalhostProfile != nil {
			f.Invalid(at, s.GetLocalhostProfile(), "can only be set when seccomp type is Localhost")
		}
	case s.LocalhostProfile == nil:
		f.Required(at, "must be set when seccomp type is Localhost")
	default:
		f.Inside(at, s.GetLocalhostProfile())
	}
}

const maxProfilePath = 4095

func (f *faults) appArmor(p *validation.Path, a *corev1.AppArmorProfile) {
	if a == nil {
		return
	}
	at := p.Child("localhostProfile")
	switch a.GetType() {
	case "Localhost":
		name := a.GetLocalhostProfile()
		if trimmed := strings.TrimSpace(name); trimmed != name {
			f.Invalid(at, name, "must not be padded with whitespace")
		} else if trimmed == "" {
			f.Required(at, "must be set when AppArmor type is Localhost")
		}
		if len(name) > maxProfilePath {
			f.TooLong(at, maxProfilePath)
		}
	case "RuntimeDefault", "Unconfined":
		if a.LocalhostProfile != nil {
			f.Invalid(at, a.GetLocalhostProfile(), "can only be set when AppArmor type is Localhost")
		}
	case "":
		f.Required(p.Child("type"), "type is required when appArmorProfile is set")
	default:
		f.OneOf(p.Child("type"), a.GetType(), "Localhost", "RuntimeDefault", "Unconfined")
	}
}

var sysctlName = regexp.MustCompile("^(" + sysctls.Segment + `[\./])*` + sysctls.Segment + "$")

func (v *Checker) sysctls(p *validation.Path, list []*corev1.Sysctl) {
	if len(list) == 0 {
		return
	}
	seen := map[string]bool{}
	for i, s := range list {
		at, name := p.Index(i).Child("name"), s.GetName()
		switch {
		case name == "":
			v.Required(at, "")
		case len(name) > sysctls.MaxLength || !sysctlName.MatchString(name):
			v.Invalid(at, name,
				fmt.Sprintf("must have at most %d characters and match regex %s", sysctls.MaxLength, sysctlName))
		case seen[name]:
			v.Duplicate(at, name)
		}
		seen[name] = true
		switch ns := sysctls.NamespaceOf(name); {
		case ns == sysctls.Net && v.spec.GetHostNetwork():
			v.Invalid(at, name, "may not be specified when 'hostNetwork' is true")
		case ns == sysctls.IPC && v.spec.GetHostIPC():
			v.Invalid(at, name, "may not be specified when 'hostIPC' is true")
		}
	}
}
