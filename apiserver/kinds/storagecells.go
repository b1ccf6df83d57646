package kinds

import (
	"slices"
	"strings"

	"monoplane.dev/object"
	"monoplane.dev/rules/resources"

	metav1 "monoplane.dev/api/meta/v1"
)

// sizeText returns the amount of storage in a list of resources, as Kubernetes writes it.
func sizeText(list map[string]*metav1.Quantity) string {
	if text := list["storage"].GetString_(); text != "" {
		return resources.Canonical(text)
	}
	return "0"
}

// shortModes returns access modes in the short form that users know, always in the same order.
func shortModes(modes []string) string {
	var short []string
	for _, m := range []struct{ long, short string }{
		{"ReadWriteOnce", "RWO"}, {"ReadOnlyMany", "ROX"}, {"ReadWriteMany", "RWX"}, {"ReadWriteOncePod", "RWOP"},
	} {
		if slices.Contains(modes, m.long) {
			short = append(short, m.short)
		}
	}
	return strings.Join(short, ",")
}

// storagePhase is the phase of a volume or claim, unless it is being deleted.
func storagePhase(o object.Object, phase string) string {
	if o.GetMetadata().GetDeletionTimestamp() != nil {
		return terminating
	}
	return phase
}

func orUnset(s string) string {
	if s == "" {
		return "<unset>"
	}
	return s
}
