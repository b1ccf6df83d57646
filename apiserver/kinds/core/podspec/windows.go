package podspec

import (
	"fmt"
	"regexp"
	"strings"

	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// operatingSystem checks spec.os, and that what only one system knows is not asked of the other. Nodes run Linux: pods
// of Windows are kept, and the agent of a node refuses to run them.
func (v *Checker) operatingSystem(p *validation.Path) {
	os := v.spec.GetOs()
	if os == nil {
		return
	}
	at := p.Child("os")
	if os.GetName() == "" {
		v.Required(at.Child("name"), "")
		return
	}
	switch os.GetName() {
	case osLinux:
		v.onlyLinux(p)
	case osWindows:
		v.onlyWindows(p)
	default:
		v.OneOf(at, os.GetName(), osLinux, osWindows)
	}
}

func (v *Checker) onlyLinux(p *validation.Path) {
	const why = "windows options cannot be set for a linux pod"
	if v.spec.GetSecurityContext().GetWindowsOptions() != nil {
		v.Forbidden(p.Child("securityContext").Child("windowsOptions"), why)
	}
	for c, at := range v.each {
		if c.GetSecurityContext().GetWindowsOptions() != nil {
			v.Forbidden(at.Child("securityContext").Child("windowsOptions"), why)
		}
	}
}

func (v *Checker) onlyWindows(p *validation.Path) {
	forbid := func(p *validation.Path, name string, set bool) {
		if set {
			v.Forbidden(p.Child(name), "cannot be set for a windows pod")
		}
	}
	s := v.spec
	forbid(p, "hostUsers", s.HostUsers != nil)
	forbid(p, "hostPID", s.GetHostPID())
	forbid(p, "hostIPC", s.GetHostIPC())
	forbid(p, "shareProcessNamespace", s.ShareProcessNamespace != nil)
	if sc, at := s.GetSecurityContext(), p.Child("securityContext"); sc != nil {
		forbid(at, "appArmorProfile", sc.AppArmorProfile != nil)
		forbid(at, "seLinuxOptions", sc.SeLinuxOptions != nil)
		forbid(at, "seccompProfile", sc.SeccompProfile != nil)
		forbid(at, "fsGroup", sc.FsGroup != nil)
		forbid(at, "fsGroupChangePolicy", sc.FsGroupChangePolicy != nil)
		forbid(at, "sysctls", len(sc.GetSysctls()) > 0)
		forbid(at, "runAsUser", sc.RunAsUser != nil)
		forbid(at, "runAsGroup", sc.RunAsGroup != nil)
		forbid(at, "supplementalGroups", len(sc.GetSupplementalGroups()) > 0)
		forbid(at, "supplementalGroupsPolicy", sc.SupplementalGroupsPolicy != nil)
		forbid(at, "seLinuxChangePolicy", sc.SeLinuxChangePolicy != nil)
	}
	for c, at := range v.each {
		sc, at := c.GetSecurityContext(), at.Child("securityContext")
		if sc == nil {
			continue
		}
		forbid(at, "appArmorProfile", sc.AppArmorProfile != nil)
		forbid(at, "seLinuxOptions", sc.SeLinuxOptions != nil)
		forbid(at, "seccompProfile", sc.SeccompProfile != nil)
		forbid(at, "capabilities", sc.Capabilities != nil)
		forbid(at, "readOnlyRootFilesystem", sc.ReadOnlyRootFilesystem != nil)
		forbid(at, "privileged", sc.Privileged != nil)
		forbid(at, "allowPrivilegeEscalation", sc.AllowPrivilegeEscalation != nil)
		forbid(at, "procMount", sc.ProcMount != nil)
		forbid(at, "runAsUser", sc.RunAsUser != nil)
		forbid(at, "runAsGroup", sc.RunAsGroup != nil)
	}
}

// hostProcess checks the pods of Windows whose containers run on the host: all of them do, and on its network.
func (v *Checker) hostProcess(p *validation.Path) {
	var pod *bool
	if w := v.spec.GetSecurityContext().GetWindowsOptions(); w != nil {
		pod = w.HostProcess
	}
	all, on := 0, 0
	for c, at := range v.each {
		all++
		own := pod
		if w := c.GetSecurityContext().GetWindowsOptions(); w != nil && w.HostProcess != nil {
			own = w.HostProcess
			if pod != nil && *pod != *own {
				v.InvalidValue(at.Child("securityContext").Child("windowsOptions").Child("hostProcess"), *own,
					fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *pod))
			}
		}
		if own != nil && *own {
			on++
		}
	}
	if on == 0 {
		return
	}
	if on != all {
		v.Invalid(p, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers")
	}
	if !v.spec.GetHostNetwork() {
		v.InvalidValue(p.Child("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers")
	}
}

// Bounds of what Windows calls its users, and what their names are made of.
const (
	maxCredentialKiB = 64
	maxUserDomain    = 256
	maxUserName      = 104
	domainLabel      = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
)

var (
	controlCharacter = regexp.MustCompile(`[[:cntrl:]]`)
	netBIOSName      = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	userDomain       = regexp.MustCompile(`^` + domainLabel + `(\.` + domainLabel + `)*$`)
)

// windowsOptions checks the options themselves.
func (f *faults) windowsOptions(p *validation.Path, w *corev1.WindowsSecurityContextOptions) {
	if w == nil {
		return
	}
	if w.GmsaCredentialSpecName != nil {
		f.Subdomain(p.Child("gmsaCredentialSpecName"), w.GetGmsaCredentialSpecName())
	}
	if w.GmsaCredentialSpec != nil {
		at, spec := p.Child("gmsaCredentialSpec"), w.GetGmsaCredentialSpec()
		if spec == "" {
			f.Invalid(at, spec, "gmsaCredentialSpec cannot be an empty string")
		} else if len(spec) > maxCredentialKiB<<10 {
			f.Invalid(at, spec, fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", maxCredentialKiB))
		}
	}
	if w.RunAsUserName != nil {
		f.Invalid(p.Child("runAsUserName"), w.GetRunAsUserName(), wrongUserName(w.GetRunAsUserName())...)
	}
}

// wrongUserName says what is wrong with the name of a user of Windows, such as "DOMAIN\user".
func wrongUserName(name string) []string {
	switch {
	case name == "":
		return []string{"runAsUserName cannot be an empty string"}
	case controlCharacter.MatchString(name):
		return []string{"runAsUserName cannot contain control characters"}
	case strings.Count(name, `\`) > 1:
		return []string{"runAsUserName cannot contain more than one backslash"}
	}
	var wrong []string
	domain, user, qualified := strings.Cut(name, `\`)
	if !qualified {
		domain, user = "", name
	}
	if len(domain) >= maxUserDomain {
		wrong = append(wrong, fmt.Sprintf("runAsUserName's Domain length must be under %d characters", maxUserDomain))
	}
	if qualified && !netBIOSName.MatchString(domain) && !userDomain.MatchString(domain) {
		wrong = append(wrong, "runAsUserName's Domain doesn't match the NetBios nor the DNS format")
	}
	if user == "" {
		wrong = append(wrong, "runAsUserName's User cannot be empty")
	} else if len(user) > maxUserName {
		wrong = append(wrong, fmt.Sprintf("runAsUserName's User length must not be longer than %d characters", maxUserName))
	}
	if user != "" && strings.Trim(user, ". ") == "" {
		wrong = append(wrong, `runAsUserName's User cannot contain only periods or spaces`)
	}
	if strings.ContainsAny(user, `"/\:;|=,+*?<>@[]`) {
		wrong = append(wrong, `runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	}
	return wrong
}
