// Package precondition judges what a request says about the object that it means: its uid, so that no successor of the
// same name is touched, and its revision (DEL-5, DEL-11). Deletions, updates and bindings of every kind are judged
// here.
//
// It guarantees the verdicts and the text of Kubernetes: test/oracle compares them. It knows nothing of who must state
// a uid, nor of what an update without a revision means.
package precondition

import (
	"fmt"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// Expected is what a request expects of an object. What is nil is not looked at; an empty text is a value like any
// other, which no stored object has.
type Expected struct{ UID, ResourceVersion *string }

// Of returns what the options of a deletion expect.
func Of(opts *metav1.DeleteOptions) Expected {
	if p := opts.GetPreconditions(); p != nil {
		return Expected{UID: p.Uid, ResourceVersion: p.ResourceVersion}
	}
	return Expected{}
}

// Named returns what an object or a reference in a request expects of the object that it means, where empty texts
// expect nothing.
func Named(uid, resourceVersion string) Expected {
	var e Expected
	if uid != "" {
		e.UID = &uid
	}
	if resourceVersion != "" {
		e.ResourceVersion = &resourceVersion
	}
	return e
}

// Broken says which expectation an object breaks, "" for none.
func (e Expected) Broken(uid, resourceVersion string) string {
	switch {
	case e.UID != nil && *e.UID != uid:
		return fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", *e.UID, uid)
	case e.ResourceVersion != nil && *e.ResourceVersion != resourceVersion:
		return fmt.Sprintf(
			"Precondition failed: ResourceVersion in precondition: %s, ResourceVersion in object meta: %s",
			*e.ResourceVersion, resourceVersion)
	default:
		return ""
	}
}

// Check refuses an object that breaks an expectation with Conflict.
func (e Expected) Check(kind *object.Kind, m *metav1.ObjectMeta) error {
	if broken := e.Broken(m.GetUid(), m.GetResourceVersion()); broken != "" {
		return apierrors.NewConflict(kind, m.GetName(), "%s", broken)
	}
	return nil
}
