// Package podautoscaler is the controller of HorizontalPodAutoscalers. Each of them is looked at every 15 seconds:
// what the pods use is read from metrics.k8s.io, package measure says how many replicas that asks for, package pace
// how fast the number follows, and the object is scaled through its subresource scale, whatever its kind is.
//
//	read the scale ──► measure ──► pace ──► write the scale ──► write the status
//	      │               │                        │                  ▲
//	      └───────────────┴── what fails is a condition and an event ─┘
//
// What it guarantees: the number is written by compare-and-swap, so that nobody who scales at the same time is
// overruled unseen; an object that is scaled to 0 is left alone; what cannot be measured scales nothing down. Answers
// are those of Kubernetes, which test/oracle compares.
//
// What it does not do: it has no source of custom and external metrics, and says so in condition ScalingActive. What
// was asked for lately is not stored: after a restart, stabilization begins with the number that there is.
package podautoscaler
