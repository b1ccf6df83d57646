package security

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/warning"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// maxChecked is how many pods of a namespace are checked when what it enforces changes.
const maxChecked = 3000

// judgeNamespace refuses labels that cannot be read, and warns of the pods that violate what a namespace enforces from
// now on.
func (s *Standards) judgeNamespace(ctx context.Context, w registry.Write, n *corev1.Namespace) error {
	if w.Subresource != "" {
		return nil
	}
	name, set := n.GetMetadata().GetName(), n.GetMetadata().GetLabels()
	p, faults := api.PolicyToEvaluate(set, s.defaults)
	if w.Live == nil {
		if len(faults) > 0 {
			return invalid(name, faults)
		}
		s.warnOfExemption(ctx, name, set, p)
		return nil
	}
	before, known := api.PolicyToEvaluate(w.Live.GetMetadata().GetLabels(), s.defaults)
	if len(faults) > 0 && (len(known) == 0 || !reflect.DeepEqual(faults, known)) {
		return invalid(name, faults)
	}
	now, was := p.Enforce, before.Enforce
	switch {
	case now == was, now.Level == api.LevelPrivileged,
		now.Version == was.Version && api.CompareLevels(now.Level, was.Level) < 1:
		return nil
	case slices.Contains(s.cfg.Namespaces, name):
		s.warnOfExemption(ctx, name, set, p)
		return nil
	case !warning.Collected(ctx):
		return nil
	}
	pods, err := s.cfg.Pods(ctx, name)
	if err != nil {
		warning.Add(ctx, "failed to list pods while checking new PodSecurity enforce level")
		return nil //nolint:nilerr // the labels are valid, whatever the pods are
	}
	for _, text := range s.violations(ctx, name, now, pods) {
		warning.Add(ctx, text)
	}
	return nil
}

// invalid refuses labels.
func invalid(name string, faults field.ErrorList) error {
	causes := make([]apierrors.Cause, len(faults))
	for i, f := range faults {
		causes[i] = apierrors.Cause{Type: string(f.Type), Field: f.Field, Message: f.ErrorBody()}
	}
	return apierrors.NewInvalid(corev1.NamespaceKind, name, causes)
}

// violations says which of the pods violate a level. One pod of each controller is looked at before all others.
func (s *Standards) violations(
	ctx context.Context, namespace string, level api.LevelVersion, pods []*corev1.Pod,
) []string {
	var first, rest []*corev1.Pod
	seen := map[string]bool{}
	for _, p := range pods {
		if slices.Contains(s.cfg.RuntimeClasses, p.GetSpec().GetRuntimeClassName()) {
			continue
		}
		owner := controllerOf(p.GetMetadata())
		if owner != "" && seen[owner] {
			rest = append(rest, p)
			continue
		}
		seen[owner] = true
		first = append(first, p)
	}
	all := append(first, rest...)
	names := map[string][]string{} // by violation
	checked := 0
	for ; checked < min(len(all), maxChecked) && ctx.Err() == nil; checked++ {
		p, err := converted(all[checked].GetMetadata(), all[checked].GetSpec())
		if err != nil {
			continue
		}
		if r := policy.AggregateCheckResults(s.checks().EvaluatePod(level, &p.ObjectMeta, &p.Spec)); !r.Allowed {
			names[r.ForbiddenReason()] = append(names[r.ForbiddenReason()], p.Name)
		}
	}
	var out, found []string
	if checked < len(all) {
		out = append(out, fmt.Sprintf(
			"new PodSecurity enforce level only checked against the first %d of %d existing pods", checked, len(all)))
	}
	for reason, of := range names {
		text := slices.Min(of)
		switch others := len(of) - 1; others {
		case 0:
		case 1:
			text += " (and 1 other pod)"
		default:
			text += fmt.Sprintf(" (and %d other pods)", others)
		}
		found = append(found, text+": "+reason)
	}
	if len(found) == 0 {
		return out
	}
	slices.Sort(found)
	out = append(out, fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q",
		namespace, level.String()))
	return append(out, found...)
}

func controllerOf(m *metav1.ObjectMeta) string {
	for _, r := range m.GetOwnerReferences() {
		if r.GetController() {
			return r.GetUid()
		}
	}
	return ""
}

// warnOfExemption warns that the labels of a namespace which nothing judges mean nothing.
func (s *Standards) warnOfExemption(ctx context.Context, name string, set map[string]string, p api.Policy) {
	if !slices.Contains(s.cfg.Namespaces, name) || p.FullyPrivileged() || p.Equivalent(&s.defaults) {
		return
	}
	var parts []string
	for _, mode := range []struct {
		name  string
		level api.LevelVersion
	}{{"enforce", p.Enforce}, {"audit", p.Audit}, {"warn", p.Warn}} {
		_, level := set[prefix+mode.name]
		_, version := set[prefix+mode.name+"-version"]
		if mode.level.Level != api.LevelPrivileged && (level || version) {
			parts = append(parts, mode.name+"="+mode.level.String())
		}
	}
	warning.Add(ctx, fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored",
		name, strings.Join(parts, ", ")))
}
