// Package validation says what is wrong with an object, in the words of Kubernetes: every bad field is
// listed with its path and the type of the fault, none hides another, and nothing is changed.
//
// Each kind has a function for creation (Pod), for update (PodUpdate) and, where the status has a
// subresource, for that (PodStatusUpdate). Callers fill in defaults first (package defaults). A nil or
// empty result means that the object is valid. Support refuses fields that Monoplane knows but does not
// serve yet, and names those that it only keeps.
//
// Guarantees: no function panics, whatever the object holds, nil elements of lists included; the cost is
// bounded by the size of the object; at most MaxCauses faults are returned, each with a bounded message.
//
// It does not look at other objects (does the node exist?), at who asks, or at fields that the server
// itself sets (uid, resourceVersion, timestamps of creation).
package validation
