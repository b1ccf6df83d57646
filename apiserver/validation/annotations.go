package validation

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
)

// Annotations of pods that have rules.
const (
	annotationMirror       = "kubernetes.io/config.mirror"
	annotationDeletionCost = "controller.kubernetes.io/pod-deletion-cost"
	annotationSeccompPod   = "seccomp.security.alpha.kubernetes.io/pod"
	prefixSeccomp          = "container.seccomp.security.alpha.kubernetes.io/"
	prefixAppArmor         = "container.apparmor.security.beta.kubernetes.io/"
)

func (v *pod) podAnnotations(p *fieldPath, set map[string]string) {
	if value, ok := set[annotationMirror]; ok && v.spec.GetNodeName() == "" {
		v.invalid(p.Key(annotationMirror), value, "must set spec.nodeName if mirror pod annotation is set")
	}
	if value, ok := set[annotationDeletionCost]; ok && !isCost(value) {
		v.invalid(p.Key(annotationDeletionCost), value, "must be a 32bit integer")
	}
	if !oldProfiles(set) {
		return
	}
	for _, k := range sorted(&few{}, set) {
		switch {
		case isOldSeccomp(k):
			v.oldSeccomp(p.Child(k), set[k])
		case strings.HasPrefix(k, prefixAppArmor):
			v.oldAppArmor(p.Key(k), strings.TrimPrefix(k, prefixAppArmor), set[k])
		}
	}
}

func isOldSeccomp(k string) bool {
	return k == annotationSeccompPod || strings.HasPrefix(k, prefixSeccomp)
}

// oldProfiles says whether annotations name profiles.
func oldProfiles(set map[string]string) bool {
	for k := range set {
		if isOldSeccomp(k) || strings.HasPrefix(k, prefixAppArmor) {
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

func (f *faults) oldSeccomp(p *fieldPath, profile string) {
	switch profile {
	case "runtime/default", "docker/default", "unconfined":
		return
	}
	if name, ok := strings.CutPrefix(profile, "localhost/"); ok {
		f.inside(p, name)
		return
	}
	f.invalid(p, profile, "must be a valid seccomp profile")
}

func (v *pod) oldAppArmor(p *fieldPath, name, profile string) {
	found := false
	for c := range v.each {
		found = found || c.GetName() == name
	}
	if !found {
		v.invalid(p, name, "container not found")
	}
	switch {
	case profile == "", profile == "runtime/default", profile == "unconfined":
	case !strings.HasPrefix(profile, "localhost/"):
		v.invalid(p, profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile))
	}
}

// matchingAnnotations checks at creation that old annotations say the same as the fields that replaced them.
func (v *pod) matchingAnnotations(set map[string]string) {
	if !oldProfiles(set) {
		return
	}
	sc := v.spec.GetSecurityContext()
	if value, ok := set[annotationSeccompPod]; ok {
		v.sameProfile(v.root("spec").Child("securityContext").Child("seccompProfile"), "seccomp", value,
			sc.GetSeccompProfile().GetType(), sc.GetSeccompProfile().GetLocalhostProfile())
	}
	for c, p := range v.each {
		own, at := c.GetSecurityContext(), p.Child("securityContext")
		if value, ok := set[prefixSeccomp+c.GetName()]; ok {
			v.sameProfile(at.Child("seccompProfile"), "seccomp", value,
				own.GetSeccompProfile().GetType(), own.GetSeccompProfile().GetLocalhostProfile())
		}
		if value, ok := set[prefixAppArmor+c.GetName()]; ok && v.spec.GetOs().GetName() != osWindows {
			profile := own.GetAppArmorProfile()
			if profile == nil {
				profile = sc.GetAppArmorProfile()
			}
			v.sameProfile(at.Child("appArmorProfile"), "apparmor", value, profile.GetType(), profile.GetLocalhostProfile())
		}
	}
}

func (f *faults) sameProfile(p *fieldPath, what, annotation, kind, local string) {
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
			f.forbidden(p.Child("localhostProfile"), what+" profile in annotation and field must match")
		}
	}
	if !agrees {
		f.forbidden(p.Child("type"), what+" type in annotation and field must match")
	}
}

// annotationChanges checks which annotations of a pod may not change.
func (f *faults) annotationChanges(p *fieldPath, new, old *corev1.Pod) {
	n, o := new.GetMetadata().GetAnnotations(), old.GetMetadata().GetAnnotations()
	fixed := func(k string) string {
		switch {
		case k == annotationMirror:
			return "mirror pod annotation"
		case strings.HasPrefix(k, prefixAppArmor):
			return "AppArmor annotations"
		}
		return ""
	}
	for _, k := range sorted(&few{}, o) {
		if value, ok := n[k]; fixed(k) != "" && (!ok || value != o[k]) {
			f.forbidden(p.Key(k), "may not remove or update "+fixed(k))
		}
	}
	for _, k := range sorted(&few{}, n) {
		if _, ok := o[k]; fixed(k) != "" && !ok {
			f.forbidden(p.Key(k), "may not add "+fixed(k))
		}
	}
}
