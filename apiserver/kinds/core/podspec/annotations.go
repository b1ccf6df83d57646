package podspec

import (
	"fmt"
	"strconv"
	"strings"

	"monoplane.dev/apiserver/validation"
)

// Annotations of pods that have rules.
const (
	AnnotationMirror       = "kubernetes.io/config.mirror"
	annotationDeletionCost = "controller.kubernetes.io/pod-deletion-cost"
	annotationSeccompPod   = "seccomp.security.alpha.kubernetes.io/pod"
	prefixSeccomp          = "container.seccomp.security.alpha.kubernetes.io/"
	PrefixAppArmor         = "container.apparmor.security.beta.kubernetes.io/"
)

// CheckAnnotations checks the annotations of the pod that have rules.
func (v *Checker) CheckAnnotations(p *validation.Path, set map[string]string) {
	if value, ok := set[AnnotationMirror]; ok && v.spec.GetNodeName() == "" {
		v.Invalid(p.Key(AnnotationMirror), value, "must set spec.nodeName if mirror pod annotation is set")
	}
	if value, ok := set[annotationDeletionCost]; ok && !isCost(value) {
		v.Invalid(p.Key(annotationDeletionCost), value, "must be a 32bit integer")
	}
	if !oldProfiles(set) {
		return
	}
	for _, k := range validation.Sorted(&validation.Few{}, set) {
		switch {
		case isOldSeccomp(k):
			v.oldSeccomp(p.Child(k), set[k])
		case strings.HasPrefix(k, PrefixAppArmor):
			v.oldAppArmor(p.Key(k), strings.TrimPrefix(k, PrefixAppArmor), set[k])
		}
	}
}

func isOldSeccomp(k string) bool {
	return k == annotationSeccompPod || strings.HasPrefix(k, prefixSeccomp)
}

// oldProfiles says whether annotations name profiles.
func oldProfiles(set map[string]string) bool {
	for k := range set {
		if isOldSeccomp(k) || strings.HasPrefix(k, PrefixAppArmor) {
			return true
		}
	}
	return false
}

// isCost says whether text is a 32-bit integer without a plus sign or leading zeros.
func isCost(text string) bool {
	if text == "" || text[0] == '+' || text[0] == '0' && text != "0" {
		return false
	}
	_, err := strconv.ParseInt(text, 10, 32)
	return err == nil
}

func (f *faults) oldSeccomp(p *validation.Path, profile string) {
	switch profile {
	case "runtime/default", "docker/default", "unconfined":
		return
	}
	if name, ok := strings.CutPrefix(profile, "localhost/"); ok {
		f.Inside(p, name)
		return
	}
	f.Invalid(p, profile, "must be a valid seccomp profile")
}

func (v *Checker) oldAppArmor(p *validation.Path, name, profile string) {
	found := false
	for c := range v.each {
		found = found || c.GetName() == name
	}
	if !found {
		v.Invalid(p, name, "container not found")
	}
	switch {
	case profile == "", profile == "runtime/default", profile == "unconfined":
	case !strings.HasPrefix(profile, "localhost/"):
		v.Invalid(p, profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile))
	}
}

// CheckOldProfiles checks at creation that old annotations say the same as the fields that replaced them.
func (v *Checker) CheckOldProfiles(set map[string]string) {
	if !oldProfiles(set) {
		return
	}
	sc := v.spec.GetSecurityContext()
	if value, ok := set[annotationSeccompPod]; ok {
		v.sameProfile(v.at.Child("securityContext").Child("seccompProfile"), "seccomp", value,
			sc.GetSeccompProfile().GetType(), sc.GetSeccompProfile().GetLocalhostProfile())
	}
	for c, p := range v.each {
		own, at := c.GetSecurityContext(), p.Child("securityContext")
		if value, ok := set[prefixSeccomp+c.GetName()]; ok {
			v.sameProfile(at.Child("seccompProfile"), "seccomp", value,
				own.GetSeccompProfile().GetType(), own.GetSeccompProfile().GetLocalhostProfile())
		}
		if value, ok := set[PrefixAppArmor+c.GetName()]; ok && v.spec.GetOs().GetName() != osWindows {
			profile := own.GetAppArmorProfile()
			if profile == nil {
				profile = sc.GetAppArmorProfile()
			}
			v.sameProfile(at.Child("appArmorProfile"), "apparmor", value, profile.GetType(), profile.GetLocalhostProfile())
		}
	}
}

func (f *faults) sameProfile(p *validation.Path, what, annotation, kind, local string) {
	name, isLocal := strings.CutPrefix(annotation, "localhost/")
	agrees := true
	switch kind {
	case "Unconfined":
		agrees = annotation == "unconfined"
	case "RuntimeDefault":
		agrees = annotation == "runtime/default" || what == "seccomp" && annotation == "docker/default"
	case "Localhost":
		agrees = isLocal
		if isLocal && name != local {
			f.Forbidden(p.Child("localhostProfile"), what+" profile in annotation and field must match")
		}
	}
	if !agrees {
		f.Forbidden(p.Child("type"), what+" type in annotation and field must match")
	}
}
