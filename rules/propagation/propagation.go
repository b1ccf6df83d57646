// Package propagation says what becomes of the objects that name a deleted one as their owner (OBJ-12): the words with
// which a client chooses, the finalizers by which the choice is kept until the garbage collector has carried it out,
// and the rule that leads from the one to the other.
//
//	Background  the owner goes at once, its dependents after it
//	Foreground  the owner waits, with finalizer foregroundDeletion, for the dependents that block its deletion
//	Orphan      the owner waits, with finalizer orphan, until no dependent names it any more; they stay
//
// It guarantees the finalizers that Kubernetes' server would set. It writes nothing and knows no kind.
package propagation

import (
	"slices"

	metav1 "monoplane.dev/api/meta/v1"
)

// What clients choose from.
const (
	Background = "Background"
	Foreground = "Foreground"
	Orphan     = "Orphan"
)

// The finalizers of an owner whose deletion has begun.
const (
	// ForegroundFinalizer holds an owner until its blocking dependents are gone.
	ForegroundFinalizer = "foregroundDeletion"
	// OrphanFinalizer holds an owner until its dependents do not name it any more.
	OrphanFinalizer = "orphan"
)

// Default is what becomes of the dependents of a kind when neither the client nor a finalizer says anything.
type Default int

// The defaults.
const (
	// Deletes is Background.
	Deletes Default = iota
	// Orphans is Orphan: kinds that did so before there was a choice still do.
	Orphans
	// None is for kinds that own nothing. Nobody can choose then, and no finalizer is kept.
	None
)

// Finalizers returns the finalizers of an owner with those in has, once a deletion with opts has begun: has itself
// when nothing changes. A choice in opts counts before a finalizer that the owner has already, and that before the
// kind's default.
func Finalizers(has []string, opts *metav1.DeleteOptions, kind Default) []string {
	want := ""
	switch choice(has, opts, kind) {
	case Foreground:
		want = ForegroundFinalizer
	case Orphan:
		want = OrphanFinalizer
	}
	ours := func(f string) bool { return f == ForegroundFinalizer || f == OrphanFinalizer }
	same := want == "" || slices.Contains(has, want)
	for _, f := range has {
		same = same && (!ours(f) || f == want)
	}
	if same {
		return has
	}
	next := slices.DeleteFunc(slices.Clone(has), ours)
	if want != "" {
		next = append(next, want)
	}
	return next
}

func choice(has []string, opts *metav1.DeleteOptions, kind Default) string {
	switch {
	case kind == None:
		return Background
	case opts.GetOrphanDependents():
		return Orphan
	case opts != nil && opts.OrphanDependents != nil:
		return Background
	case opts.GetPropagationPolicy() != "":
		return opts.GetPropagationPolicy()
	}
	for _, f := range has {
		switch f {
		case OrphanFinalizer:
			return Orphan
		case ForegroundFinalizer:
			return Foreground
		}
	}
	if kind == Orphans {
		return Orphan
	}
	return Background
}
