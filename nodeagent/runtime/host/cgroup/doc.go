// Package cgroup finds the control groups that this process may use, makes those of pods and containers, and sets
// their limits.
//
// A pod's group is a child of the parent group (by default the one that this process is in), and each container's a
// child of its pod's:
//
//	PARENT/monoplane-SANDBOX/shim       the shim
//	PARENT/monoplane-SANDBOX/CONTAINER  one container
//
// In cgroup2 they are made for every pod, because a group can be killed as a whole; controllers are a bonus. In cgroup
// v1 they are made only for controllers that limit something, because joining them is slow.
//
// What a limit needs and is not there (a controller, a privilege) is returned as a warning, a sentence for the person
// who wrote the limit. Nothing fails for it: the pod runs, unlimited.
package cgroup
