// Package criconfig translates a pod into what CRI is asked for: the sandbox's and the containers'
// configuration, with environment, command, labels, annotations and log paths. It is pure: no I/O, no clock.
//
// Labels and annotations are those that Kubernetes' own agent uses, so that tools like crictl show pods as
// usual, and they are all that a restarted agent needs to know its containers again.
//
// What cannot be translated is an error that names the field; nothing is left out in silence.
package criconfig
