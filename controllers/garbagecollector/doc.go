// Package garbagecollector is the controller that removes objects whose owners are gone, and carries out what a
// deletion says about dependents (OBJ-12; package propagation has the words).
//
//	watches of all kinds ──► graph of ids and edges ──► what to look at ──► a live look ──► delete, patch, or nothing
//
// An object that is looked at is read, and so is each owner that it names:
//
//	owners                                          the object
//	one is there and does not wait                  stays; references to the others are taken from it
//	none is there, or all wait in the foreground    is deleted: in the foreground if one waits and it has dependents
//	                                                itself, else as its finalizers say, else in the background
//	one of a kind that is not served                stays
//	a namespaced one of a cluster-scoped object     stays
//
// and one that waits loses its finalizer once no dependent blocks it (foregroundDeletion), or none names it (orphan).
// An owner is there when an object of its kind, name and uid is, in the namespace of the dependent or in none; so the
// references to objects of other namespaces are to nothing. They get a warning event, OwnerRefInvalidNamespace, and
// those to kinds that are not served OwnerRefUnknownKind.
//
// Objects that wait for each other in the foreground, in a cycle, are made not to block, so that all go.
//
// What it guarantees: no object is deleted of which a live read, made after the look began, has shown an owner that
// stays. Each deletion carries the uid, and the revision at which the references were read, unless these are the same
// at a later one. A finalizer goes only after lists of all kinds, not older than the owner's mark, have shown no
// dependent that matters. What fails is tried again, ever more slowly. Two collectors at once do no harm.
//
// It does not collect Events, which go by themselves.
package garbagecollector
