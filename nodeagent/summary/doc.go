// Package summary is what a node and its pods use, in the two forms in which kubelets serve it: the JSON of
// /stats/summary (stats/v1alpha1, field by field as Kubernetes writes it) and the metrics of /metrics/resource and
// /metrics/cadvisor.
//
// It is pure: the agent measures, and this package gives it a form. What is not known is left out, and never zero.
package summary

import "time"

// Summary is the answer of /stats/summary.
type Summary struct {
	Node Node  `json:"node"`
	Pods []Pod `json:"pods"`
}

// Node is what a machine uses.
type Node struct {
	Name      string   `json:"nodeName"`
	StartTime Time     `json:"startTime"` // of the machine
	CPU       *CPU     `json:"cpu,omitempty"`
	Memory    *Memory  `json:"memory,omitempty"`
	Network   *Network `json:"network,omitempty"`
	// FS is what pods store on, ImageFS and ContainerFS what images and the layers of containers do.
	FS      *FS      `json:"fs,omitempty"`
	Runtime *Runtime `json:"runtime,omitempty"`
	Limit   *Rlimit  `json:"rlimit,omitempty"`
	Swap    *Swap    `json:"swap,omitempty"`
}

// Runtime is what the runtime stores.
type Runtime struct {
	ImageFS     *FS `json:"imageFs,omitempty"`
	ContainerFS *FS `json:"containerFs,omitempty"`
}

// Rlimit says how many tasks there are and may be.
type Rlimit struct {
	Time    Time   `json:"time"`
	MaxPID  *int64 `json:"maxpid,omitempty"`
	Running *int64 `json:"curproc,omitempty"`
}

// Pod is what a pod uses.
type Pod struct {
	Ref              Reference   `json:"podRef"`
	StartTime        Time        `json:"startTime"`
	Containers       []Container `json:"containers"`
	CPU              *CPU        `json:"cpu,omitempty"`
	Memory           *Memory     `json:"memory,omitempty"`
	Network          *Network    `json:"network,omitempty"`
	Volumes          []Volume    `json:"volume,omitempty"`
	EphemeralStorage *FS         `json:"ephemeral-storage,omitempty"`
	Processes        *Processes  `json:"process_stats,omitempty"`
	Swap             *Swap       `json:"swap,omitempty"`
}

// Reference names a pod.
type Reference struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
}

// Processes counts those of a pod.
type Processes struct {
	Count *uint64 `json:"process_count,omitempty"`
}

// Container is what a container uses.
type Container struct {
	Name      string  `json:"name"`
	StartTime Time    `json:"startTime"`
	CPU       *CPU    `json:"cpu,omitempty"`
	Memory    *Memory `json:"memory,omitempty"`
	// RootFS is what it has written outside of volumes, Logs what it has said.
	RootFS *FS   `json:"rootfs,omitempty"`
	Logs   *FS   `json:"logs,omitempty"`
	Swap   *Swap `json:"swap,omitempty"`
	// ID and Image are what the runtime and the pod call it, for /metrics/cadvisor.
	ID    string `json:"-"`
	Image string `json:"-"`
}

// CPU is the rate, in thousand-millionths of a cpu, and the sum.
type CPU struct {
	Time            Time    `json:"time"`
	NanoCores       *uint64 `json:"usageNanoCores,omitempty"`
	CoreNanoSeconds *uint64 `json:"usageCoreNanoSeconds,omitempty"`
}

// Memory is in bytes, faults are counted from the start on.
type Memory struct {
	Time        Time    `json:"time"`
	Available   *uint64 `json:"availableBytes,omitempty"`
	Usage       *uint64 `json:"usageBytes,omitempty"`
	WorkingSet  *uint64 `json:"workingSetBytes,omitempty"`
	RSS         *uint64 `json:"rssBytes,omitempty"`
	Faults      *uint64 `json:"pageFaults,omitempty"`
	MajorFaults *uint64 `json:"majorPageFaults,omitempty"`
}

// Swap is in bytes.
type Swap struct {
	Time      Time    `json:"time"`
	Available *uint64 `json:"swapAvailableBytes,omitempty"`
	Usage     *uint64 `json:"swapUsageBytes,omitempty"`
}

// Network is what has passed: the interface by which the machine, or the pod, is reached, and all of them.
type Network struct {
	Time Time `json:"time"`
	Interface
	Interfaces []Interface `json:"interfaces,omitempty"`
}

// Interface is what has passed through one.
type Interface struct {
	Name     string  `json:"name"`
	RxBytes  *uint64 `json:"rxBytes,omitempty"`
	RxErrors *uint64 `json:"rxErrors,omitempty"`
	TxBytes  *uint64 `json:"txBytes,omitempty"`
	TxErrors *uint64 `json:"txErrors,omitempty"`
}

// FS is what is used of a file system, and what it has.
type FS struct {
	Time       Time    `json:"time"`
	Available  *uint64 `json:"availableBytes,omitempty"`
	Capacity   *uint64 `json:"capacityBytes,omitempty"`
	Used       *uint64 `json:"usedBytes,omitempty"`
	InodesFree *uint64 `json:"inodesFree,omitempty"`
	Inodes     *uint64 `json:"inodes,omitempty"`
	InodesUsed *uint64 `json:"inodesUsed,omitempty"`
}

// Volume is what a volume of a pod holds.
type Volume struct {
	FS
	Name  string `json:"name,omitempty"`
	Claim *Claim `json:"pvcRef,omitempty"`
}

// Claim names the claim behind a volume.
type Claim struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// Time is written as Kubernetes does: in UTC, with whole seconds.
type Time struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return []byte(`"` + t.UTC().Format(time.RFC3339) + `"`), nil
}
