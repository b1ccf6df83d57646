// Package usage says what pods use of CPU, memory, processes and writable layers, as the runtime tells.
//
// It asks when it is asked and remembers nothing. What the runtime does not tell counts as nothing.
package usage

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/criconfig"
)

// Pod is what a pod uses.
type Pod struct {
	// Namespace and Name are the pod's.
	Namespace, Name string
	// Containers are those that run, by name.
	Containers map[string]Container
	// Processes is 0 where the runtime does not tell.
	Processes int64
	// Whole is what the runtime tells of the pod as a whole, but not of its containers; nil for nothing.
	Whole *runtimeapi.LinuxPodSandboxStats
}

// Container is what a container uses.
type Container struct {
	// At is when the runtime measured.
	At time.Time
	// CPU is the time used since the container started. NanoCores is the rate of it as the runtime sees it, 0 where it
	// does not tell.
	CPU       time.Duration
	NanoCores int64
	// Memory is the working set in bytes.
	Memory int64
	// Layer is what the writable layer takes in bytes, LayerInodes in files.
	Layer, LayerInodes int64
	// Told is all that the runtime tells.
	Told *runtimeapi.ContainerStats
}

// Known tells whether the runtime says what the container uses, of processors or memory.
func (c Container) Known() bool { return c.Told.GetCpu() != nil || c.Told.GetMemory() != nil }

// timeout bounds one call to the runtime.
const timeout = 30 * time.Second

// Runtime is what is asked of a runtime.
type Runtime interface {
	runtimeapi.RuntimeServiceClient
}

// Pods measures all pods whose labels owns accepts, by uid.
func Pods(
	ctx context.Context, runtime Runtime, owns func(labels map[string]string) bool,
) (map[string]*Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	list, err := runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		return nil, err
	}
	out := make(map[string]*Pod)
	for _, s := range list.GetStats() {
		labels := s.GetAttributes().GetLabels()
		if !owns(labels) {
			continue
		}
		uid := labels[criconfig.LabelPodUID]
		if out[uid] == nil {
			out[uid] = &Pod{
				Namespace: labels[criconfig.LabelPodNamespace], Name: labels[criconfig.LabelPodName],
				Containers: map[string]Container{},
			}
		}
		out[uid].Containers[s.GetAttributes().GetMetadata().GetName()] = containerOf(s)
	}
	// Only some runtimes count processes.
	boxes, err := runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
	if err == nil {
		for _, s := range boxes.GetStats() {
			if p := out[s.GetAttributes().GetLabels()[criconfig.LabelPodUID]]; p != nil {
				p.Processes = int64(s.GetLinux().GetProcess().GetProcessCount().GetValue())
				whole := s.GetLinux()
				p.Whole = &runtimeapi.LinuxPodSandboxStats{Cpu: whole.GetCpu(), Memory: whole.GetMemory(),
					Network: whole.GetNetwork(), Process: whole.GetProcess()}
			}
		}
	}
	return out, nil
}

func containerOf(s *runtimeapi.ContainerStats) Container {
	c := Container{
		Told:        s,
		CPU:         time.Duration(s.GetCpu().GetUsageCoreNanoSeconds().GetValue()),
		NanoCores:   int64(s.GetCpu().GetUsageNanoCores().GetValue()),
		Memory:      int64(s.GetMemory().GetWorkingSetBytes().GetValue()),
		Layer:       int64(s.GetWritableLayer().GetUsedBytes().GetValue()),
		LayerInodes: int64(s.GetWritableLayer().GetInodesUsed().GetValue()),
	}
	if at := max(s.GetCpu().GetTimestamp(), s.GetMemory().GetTimestamp()); at > 0 {
		c.At = time.Unix(0, at)
	}
	return c
}
