package pod

import (
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/proto"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// ValidateUpdate checks that a change of a pod is allowed: the new pod is valid, and its spec differs only where
// it may (OBJ-10). Status is not looked at. The caller has filled in defaults (Default) and what the
// server keeps for itself, such as the generation.
func ValidateUpdate(new, old *corev1.Pod) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		v := check(f, new, true)
		v.annotationChanges(f.Root("metadata").Child("annotations"), new, old)

		was, p := old.GetSpec(), f.Root("spec")
		if was == nil {
			was = &corev1.PodSpec{}
		}
		v.deadlineChange(p.Child("activeDeadlineSeconds"), was)
		v.onlyMoreTolerations(p.Child("tolerations"), was.GetTolerations())
		v.onlyFewerGates(p.Child("schedulingGates"), was.GetSchedulingGates())
		if len(was.GetSchedulingGates()) > 0 {
			v.gatedChanges(p, was)
		}
		if v.sameContainers(p, was) {
			v.nothingElse(p, was)
		}
	}
	return f.Causes()
}

// sameContainers checks that no container came or went.
func (v checks) sameContainers(p *validation.Path, was *corev1.PodSpec) bool {
	ok := true
	for _, l := range []struct {
		name     string
		new, old []*corev1.Container
	}{
		{"containers", v.spec.GetContainers(), was.GetContainers()},
		{"initContainers", v.spec.GetInitContainers(), was.GetInitContainers()},
	} {
		if len(l.new) != len(l.old) {
			v.Forbidden(p.Child(l.name), "pod updates may not add or remove containers")
			ok = false
		}
	}
	return ok
}

// deadlineChange allows a deadline to be set, and to be brought forward.
func (v checks) deadlineChange(p *validation.Path, was *corev1.PodSpec) {
	now, old := v.spec.ActiveDeadlineSeconds, was.ActiveDeadlineSeconds
	switch {
	case now == nil && old != nil:
		v.InvalidValue(p, nil, "must not update from a positive integer to nil value")
	case now == nil:
	case *now < 0 || *now > math.MaxInt32:
		v.InvalidValue(p, *now, utilvalidation.InclusiveRangeError(0, math.MaxInt32))
	case old != nil && *old < *now:
		v.InvalidValue(p, *now, "must be less than or equal to previous value")
	}
}

// toleration identifies a toleration apart from its seconds, which may change.
type toleration struct{ key, operator, value, effect string }

func tolerationOf(t *corev1.Toleration) toleration {
	return toleration{t.GetKey(), t.GetOperator(), t.GetValue(), t.GetEffect()}
}

func (v checks) onlyMoreTolerations(p *validation.Path, old []*corev1.Toleration) {
	now := make(map[toleration]bool, len(v.spec.GetTolerations()))
	for _, t := range v.spec.GetTolerations() {
		now[tolerationOf(t)] = true
	}
	for _, t := range old {
		if !now[tolerationOf(t)] {
			v.Forbidden(p, "existing toleration can not be modified except its tolerationSeconds")
			return
		}
	}
}

func (v checks) onlyFewerGates(p *validation.Path, old []*corev1.PodSchedulingGate) {
	had := make(map[string]bool, len(old))
	for _, g := range old {
		had[g.GetName()] = true
	}
	for i, g := range v.spec.GetSchedulingGates() {
		if !had[g.GetName()] {
			v.Forbidden(p.Index(i).Child("name"),
				fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", g.GetName()))
		}
	}
}

// gatedChanges checks the changes that only a pod that is still gated may see: where it may go can become
// narrower.
func (v checks) gatedChanges(p *validation.Path, was *corev1.PodSpec) {
	now := v.spec.GetNodeSelector()
	for _, k := range validation.Sorted(&validation.Few{}, was.GetNodeSelector()) {
		if value, ok := now[k]; !ok || value != was.GetNodeSelector()[k] {
			v.InvalidValue(p.Child("nodeSelector"), now,
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)")
			break
		}
	}
	terms := requiredTerms(v.spec)
	had := requiredTerms(was)
	at := p.Child("affinity").Child("nodeAffinity").
		Child("requiredDuringSchedulingIgnoredDuringExecution").Child("nodeSelectorTerms")
	switch {
	case len(had) == 0:
	case len(had) != len(terms):
		v.InvalidValue(at, field.OmitValueType{}, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
	default:
		for i := range had {
			if !narrower(terms[i], had[i]) {
				v.InvalidValue(at.Index(i), field.OmitValueType{}, "only additions are allowed (no mutations or deletions)")
			}
		}
	}
}

func requiredTerms(s *corev1.PodSpec) []*corev1.NodeSelectorTerm {
	return s.GetAffinity().GetNodeAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution().GetNodeSelectorTerms()
}

// narrower says whether a term only gained requirements. An empty term matches nothing, so it may not
// gain any.
func narrower(now, was *corev1.NodeSelectorTerm) bool {
	if len(was.GetMatchExpressions())+len(was.GetMatchFields()) == 0 {
		return len(now.GetMatchExpressions())+len(now.GetMatchFields()) == 0
	}
	return begins(now.GetMatchExpressions(), was.GetMatchExpressions()) &&
		begins(now.GetMatchFields(), was.GetMatchFields())
}

func begins(now, was []*corev1.NodeSelectorRequirement) bool {
	if len(now) < len(was) {
		return false
	}
	for i := range was {
		if !proto.Equal(now[i], was[i]) {
			return false
		}
	}
	return true
}

// maxDifferences is the most changed fields that a message names.
const maxDifferences = 10

// nothingElse refuses every change that none of the other checks knows, and names the fields.
func (v checks) nothingElse(p *validation.Path, was *corev1.PodSpec) {
	if proto.Equal(v.spec, was) {
		return
	}
	masked := maskAllowed(v.spec, was)
	changed := validation.Differences(masked.ProtoReflect(), was.ProtoReflect(), p.String(), maxDifferences+1)
	if len(changed) == 0 {
		return
	}
	if len(changed) > maxDifferences {
		changed[maxDifferences] = "..."
	}
	v.Forbidden(p, "pod updates may not change fields other than `spec.containers[*].image`,"+
		"`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"+
		"`spec.tolerations` (only additions to existing tolerations),"+
		"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"+
		"changed: "+strings.Join(changed, ", "))
}

// maskAllowed returns a shallow copy of the new spec in which everything that may change is as it was.
func maskAllowed(now, was *corev1.PodSpec) *corev1.PodSpec {
	m := new(corev1.PodSpec)
	m.SetShallow(now)
	m.Containers = maskImages(now.GetContainers(), was.GetContainers())
	m.InitContainers = maskImages(now.GetInitContainers(), was.GetInitContainers())
	m.ActiveDeadlineSeconds = was.ActiveDeadlineSeconds
	m.SchedulingGates = was.GetSchedulingGates()
	m.Tolerations = was.GetTolerations()
	if len(was.GetSchedulingGates()) == 0 {
		return m
	}
	m.NodeSelector = was.GetNodeSelector()
	pods, anti := now.GetAffinity().GetPodAffinity(), now.GetAffinity().GetPodAntiAffinity()
	if pods == nil && anti == nil && was.GetAffinity() == nil {
		m.Affinity = nil
		return m
	}
	m.Affinity = &corev1.Affinity{
		NodeAffinity: was.GetAffinity().GetNodeAffinity(), PodAffinity: pods, PodAntiAffinity: anti,
	}
	return m
}

func maskImages(now, was []*corev1.Container) []*corev1.Container {
	masked := make([]*corev1.Container, len(now))
	for i, c := range now {
		if masked[i] = c; c.GetImage() != was[i].GetImage() {
			masked[i] = new(corev1.Container)
			masked[i].SetShallow(c)
			masked[i].Image = was[i].GetImage()
		}
	}
	return masked
}

// annotationChanges checks which annotations of a pod may not change.
func (v checks) annotationChanges(p *validation.Path, new, old *corev1.Pod) {
	n, o := new.GetMetadata().GetAnnotations(), old.GetMetadata().GetAnnotations()
	fixed := func(k string) string {
		switch {
		case k == podspec.AnnotationMirror:
			return "mirror pod annotation"
		case strings.HasPrefix(k, podspec.PrefixAppArmor):
			return "AppArmor annotations"
		}
		return ""
	}
	for _, k := range validation.Sorted(&validation.Few{}, o) {
		if value, ok := n[k]; fixed(k) != "" && (!ok || value != o[k]) {
			v.Forbidden(p.Key(k), "may not remove or update "+fixed(k))
		}
	}
	for _, k := range validation.Sorted(&validation.Few{}, n) {
		if _, ok := o[k]; fixed(k) != "" && !ok {
			v.Forbidden(p.Key(k), "may not add "+fixed(k))
		}
	}
}
