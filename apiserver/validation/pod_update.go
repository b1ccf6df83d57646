package validation

import (
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
)

// PodUpdate checks that a change of a pod is allowed: the new pod is valid, and its spec differs only where
// it may (OBJ-10). Status is not looked at. The caller has filled in defaults (defaults.Pod) and what the
// server keeps for itself, such as the generation.
func PodUpdate(new, old *corev1.Pod) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.objectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		v := f.pod(new, true)
		f.annotationChanges(f.root("metadata").Child("annotations"), new, old)

		was, p := old.GetSpec(), f.root("spec")
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
	return f.causes()
}

// sameContainers checks that no container came or went.
func (v *pod) sameContainers(p *fieldPath, was *corev1.PodSpec) bool {
	ok := true
	for _, l := range []struct {
		name     string
		new, old []*corev1.Container
	}{
		{"containers", v.spec.GetContainers(), was.GetContainers()},
		{"initContainers", v.spec.GetInitContainers(), was.GetInitContainers()},
	} {
		if len(l.new) != len(l.old) {
			v.forbidden(p.Child(l.name), "pod updates may not add or remove containers")
			ok = false
		}
	}
	return ok
}

// deadlineChange allows a deadline to be set, and to be brought forward.
func (v *pod) deadlineChange(p *fieldPath, was *corev1.PodSpec) {
	now, old := v.spec.ActiveDeadlineSeconds, was.ActiveDeadlineSeconds
	switch {
	case now == nil && old != nil:
		v.invalidValue(p, nil, "must not update from a positive integer to nil value")
	case now == nil:
	case *now < 0 || *now > math.MaxInt32:
		v.invalidValue(p, *now, validation.InclusiveRangeError(0, math.MaxInt32))
	case old != nil && *old < *now:
		v.invalidValue(p, *now, "must be less than or equal to previous value")
	}
}

// toleration identifies a toleration apart from its seconds, which may change.
type toleration struct{ key, operator, value, effect string }

func tolerationOf(t *corev1.Toleration) toleration {
	return toleration{t.GetKey(), t.GetOperator(), t.GetValue(), t.GetEffect()}
}

func (v *pod) onlyMoreTolerations(p *fieldPath, old []*corev1.Toleration) {
	now := make(map[toleration]bool, len(v.spec.GetTolerations()))
	for _, t := range v.spec.GetTolerations() {
		now[tolerationOf(t)] = true
	}
	for _, t := range old {
		if !now[tolerationOf(t)] {
			v.forbidden(p, "existing toleration can not be modified except its tolerationSeconds")
			return
		}
	}
}

func (v *pod) onlyFewerGates(p *fieldPath, old []*corev1.PodSchedulingGate) {
	had := make(map[string]bool, len(old))
	for _, g := range old {
		had[g.GetName()] = true
	}
	for i, g := range v.spec.GetSchedulingGates() {
		if !had[g.GetName()] {
			v.forbidden(p.Index(i).Child("name"),
				fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", g.GetName()))
		}
	}
}

// gatedChanges checks the changes that only a pod that is still gated may see: where it may go can become
// narrower.
func (v *pod) gatedChanges(p *fieldPath, was *corev1.PodSpec) {
	now := v.spec.GetNodeSelector()
	for _, k := range sorted(&few{}, was.GetNodeSelector()) {
		if value, ok := now[k]; !ok || value != was.GetNodeSelector()[k] {
			v.invalidValue(p.Child("nodeSelector"), now,
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)")
			break
		}
	}
	terms := requiredTerms(v.spec)
	had := requiredTerms(was)
	at := p.Child("affinity").Child("nodeAffinity").Child("requiredDuringSchedulingIgnoredDuringExecution").Child("nodeSelectorTerms")
	switch {
	case len(had) == 0:
	case len(had) != len(terms):
		v.invalidValue(at, field.OmitValueType{}, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
	default:
		for i := range had {
			if !narrower(terms[i], had[i]) {
				v.invalidValue(at.Index(i), field.OmitValueType{}, "only additions are allowed (no mutations or deletions)")
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

// nothingElse refuses every change that none of the other checks knows, and names the fields.
func (v *pod) nothingElse(p *fieldPath, was *corev1.PodSpec) {
	if proto.Equal(v.spec, was) {
		return
	}
	masked := maskAllowed(v.spec, was)
	changed := differences(masked.ProtoReflect(), was.ProtoReflect(), p.String(), maxDifferences+1)
	if len(changed) == 0 {
		return
	}
	if len(changed) > maxDifferences {
		changed[maxDifferences] = "..."
	}
	v.forbidden(p, "pod updates may not change fields other than `spec.containers[*].image`,"+
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
