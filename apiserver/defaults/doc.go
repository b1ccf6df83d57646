// Package defaults fills in what a client left out, with the values of Kubernetes 1.36.
//
// For each kind there is a function that Kubernetes applies whenever it decodes the object, on create and
// on update alike (Pod), and where creation adds more, one for that (NewPod). They change an object that
// the caller owns, never fail, accept objects with nil parts and nil elements, and are idempotent.
// Validation (package validation) expects objects that have been through here.
//
// Two things are deliberately not done: no token volume is added to pods, and no pod is given its priority, which
// takes a look at the priority classes (package priority).
package defaults
