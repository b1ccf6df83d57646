package hostinfo

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ZoneLabel names the zone of a node.
const ZoneLabel = "topology.kubernetes.io/zone"

// kubeletLabels are the labels in Kubernetes' own namespaces that may be given to a node, as kubelet takes them;
// others there are for administrators and for Kubernetes itself. spec: NODE-6
var kubeletLabels = []string{
	"beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "beta.kubernetes.io/os",
	"failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
	"kubernetes.io/arch", "kubernetes.io/hostname", "kubernetes.io/os",
	"node.kubernetes.io/instance-type", "topology.kubernetes.io/region", ZoneLabel,
}

// kubeletNamespaces are the namespaces of labels, themselves and what is below them, that may be given too.
var kubeletNamespaces = []string{"kubelet.kubernetes.io", "node.kubernetes.io"}

// CheckLabels returns every mistake in labels that a node is to have.
func CheckLabels(labels map[string]string) error {
	var errs []error
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		for _, problem := range validation.IsQualifiedName(k) {
			errs = append(errs, fmt.Errorf("node label %q: the key is not valid: %s", k, problem))
		}
		for _, problem := range validation.IsValidLabelValue(labels[k]) {
			errs = append(errs, fmt.Errorf("node label %q: the value %q is not valid: %s", k, labels[k], problem))
		}
		if reserved(k) {
			errs = append(errs, fmt.Errorf(
				"node label %q: in the namespaces kubernetes.io and k8s.io a node can be given only %s, and what is in %s", k,
				strings.Join(kubeletLabels, ", "), strings.Join(kubeletNamespaces, " or ")))
		}
	}
	return errors.Join(errs...)
}

// reserved reports whether a label is Kubernetes' own and not for nodes to have.
func reserved(key string) bool {
	namespace, _, qualified := strings.Cut(key, "/")
	in := func(domain string) bool { return namespace == domain || strings.HasSuffix(namespace, "."+domain) }
	return qualified && (in("kubernetes.io") || in("k8s.io")) &&
		!slices.Contains(kubeletLabels, key) && !slices.ContainsFunc(kubeletNamespaces, in)
}
