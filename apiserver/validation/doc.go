// Package validation is what the kinds say with what is wrong with an object, in the words of Kubernetes: every bad
// field is listed with its path and the type of the fault, none hides another, and nothing is changed. Faults collects
// them; its methods check what many kinds have: metadata, names, labels, selectors, amounts, addresses.
//
// The rules of a kind lie with it, in the packages below apiserver/kinds: one function for creation, one for update
// and, where a subresource has rules of its own, one for that. They expect an object that has been through the
// defaults of its kind. A nil or empty result means that the object is valid. Support refuses fields that Monoplane
// knows but does not serve yet, and names those that it only keeps.
//
// Guarantees, which hold for a kind that uses nothing else: no function panics, whatever the object holds, nil
// elements of lists included; the cost is bounded by the size of the object; at most MaxCauses faults are returned,
// each with a bounded message.
//
// It does not look at other objects (does the node exist?), at who asks, or at fields that the server
// itself sets (uid, resourceVersion, timestamps of creation).
package validation
