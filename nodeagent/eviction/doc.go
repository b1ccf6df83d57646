// Package eviction decides when a machine runs out of something, which conditions its node has for that, and which pod
// goes first. It has no clock and measures nothing: readings and times come in, verdicts come out. spec: QOS-2
//
//	readings ──► thresholds crossed ──► conditions, for the transition period after the last crossing
//	                    │ crossed for the grace period (hard ones have none)
//	                    ▼
//	             what to reclaim ──► the node's own first (package gc) ──► then one pod, by rank
//
// A threshold that has been crossed counts as crossed until its minimum reclaim has become free on top of it. Memory
// comes before everything else.
//
// The ranks are Kubernetes': by memory, who exceeds what he asked for, then who matters least, then who exceeds by
// most; by disk likewise; by process ids, who matters least, then who has most. Pods on which the system depends never
// go.
//
// A pod that exceeds its own limit of local storage goes at once, whatever the machine has, and that is its own doing
// (DISR-6).
package eviction
