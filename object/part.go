package object

import metav1 "monoplane.dev/api/meta/v1"

// PartOfRevision is the annotation of an object that is shown in part, and says of which revision. The part has no
// resourceVersion of its own: what has one is the same for all who read it, and its encoded body is shared.
const PartOfRevision = "monoplane.dev/part-of-revision"

// Revision returns the resourceVersion of an object, also of one that is shown in part; empty for none.
func Revision(m *metav1.ObjectMeta) string {
	if rev := m.GetResourceVersion(); rev != "" {
		return rev
	}
	return m.GetAnnotations()[PartOfRevision]
}
