// Package configfile reads the scheduler's configuration: a KubeSchedulerConfiguration of
// kubescheduler.config.k8s.io/v1, in YAML or JSON (spec: SCHED-1). It means what it means to kube-scheduler, with one
// field more: disablePreemption (spec: PREEMPT-3), which takes DefaultPreemption out of every profile.
//
// It guarantees that nothing in a file is ignored in silence: unknown and repeated fields, wrong types, unknown
// plugins, arguments that a plugin refuses, and settings that have no effect here are faults. All of them are reported
// at once, each with file, line and path. Settings without effect are accepted only with the values that tools write
// by default.
//
// There are two exceptions. Parallelism must be a positive number, and changes nothing, since one goroutine decides.
// Constraints by default of PodTopologySpread are checked, and wait for Services and workloads, to whose pods they
// apply (spec: SPREAD-4).
package configfile
