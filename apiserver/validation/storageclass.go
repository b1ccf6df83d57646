package validation

import (
	"maps"
	"slices"
	"strings"

	"monoplane.dev/apierrors"

	corev1 "monoplane.dev/api/core/v1"
	storagev1 "monoplane.dev/api/storage/v1"
)

const (
	maxParameters     = 512
	maxParameterBytes = 256 << 10
)

// StorageClass checks a class that is to be created.
func StorageClass(c *storagev1.StorageClass) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.storageClass(c, nil)
	}
	return f.causes()
}

// StorageClassUpdate checks that a change of a class is allowed: what made its volumes stays.
func StorageClassUpdate(new, old *storagev1.StorageClass) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.storageClass(new, old)
		if !maps.Equal(new.GetParameters(), old.GetParameters()) {
			f.invalidValue(f.root("parameters"), new.GetParameters(), immutable)
		}
		if new.GetProvisioner() != old.GetProvisioner() {
			f.invalid(f.root("provisioner"), new.GetProvisioner(), immutable)
		}
		policy, mode := classRules(new)
		wasPolicy, wasMode := classRules(old)
		fixed(&f, f.root("reclaimPolicy"), policy, wasPolicy)
		fixed(&f, f.root("volumeBindingMode"), mode, wasMode)
	}
	return f.causes()
}

func classRules(c *storagev1.StorageClass) (reclaimPolicy, bindingMode *string) {
	if c == nil {
		return nil, nil
	}
	return c.ReclaimPolicy, c.VolumeBindingMode
}

func (f *faults) storageClass(c, old *storagev1.StorageClass) {
	f.core(c.GetMetadata(), old.GetMetadata(), false, NameIsSubdomain)
	if c.GetProvisioner() == "" {
		f.required(f.root("provisioner"), "")
	} else {
		f.qualified(f.root("provisioner"), strings.ToLower(c.GetProvisioner()))
	}
	f.parameters(f.root("parameters"), c.GetParameters())
	if policy := c.GetReclaimPolicy(); policy != "" {
		f.oneOf(f.root("reclaimPolicy"), policy, "Delete", "Retain")
	}
	if _, mode := classRules(c); mode == nil {
		f.required(f.root("volumeBindingMode"), "")
	} else {
		f.oneOf(f.root("volumeBindingMode"), c.GetVolumeBindingMode(), "Immediate", "WaitForFirstConsumer")
	}
	f.topologies(f.root("allowedTopologies"), c.GetAllowedTopologies())
}

func (f *faults) parameters(p *fieldPath, set map[string]string) {
	if len(set) > maxParameters {
		f.tooLong(p, maxParameters)
		return
	}
	total := 0
	for k, v := range set {
		if k == "" {
			f.invalid(p, k, "field can not be empty.")
		}
		total += len(k) + len(v)
	}
	if total > maxParameterBytes {
		f.tooLong(p, maxParameterBytes)
	}
}

// topologies checks terms over labels of nodes, which must say something, and no two of them the same.
func (f *faults) topologies(p *fieldPath, terms []*corev1.TopologySelectorTerm) {
	var seen []map[string][]string
	for i, t := range terms {
		at := p.Index(i).Child("matchLabelExpressions")
		labels := map[string][]string{}
		for j, r := range t.GetMatchLabelExpressions() {
			f.topology(at.Index(j), r)
			if _, ok := labels[r.GetKey()]; ok {
				f.duplicate(at.Index(j).Child("key"), r.GetKey())
			}
			values := slices.Clone(r.GetValues())
			slices.Sort(values)
			labels[r.GetKey()] = slices.Compact(values)
		}
		same := func(o map[string][]string) bool { return maps.EqualFunc(o, labels, slices.Equal) }
		if len(labels) == 0 || slices.ContainsFunc(seen, same) {
			f.duplicate(at, "") // An empty term too, as in Kubernetes.
		}
		seen = append(seen, labels)
	}
}

func (f *faults) topology(p *fieldPath, r *corev1.TopologySelectorLabelRequirement) {
	values := p.Child("values")
	if len(r.GetValues()) == 0 {
		f.required(values, "")
	}
	had := map[string]bool{}
	for i, v := range r.GetValues() {
		if had[v] {
			f.duplicate(values.Index(i), v)
		}
		had[v] = true
	}
	f.qualified(p.Child("key"), r.GetKey())
}
