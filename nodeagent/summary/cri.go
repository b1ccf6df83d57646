package summary

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func at(nanoseconds int64) Time { return Time{time.Unix(0, nanoseconds)} }

func number(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return &v.Value
}

// CPUOf gives what a runtime says of cpu its form; nil for nothing. NanoCores stands in where it does not say how much
// is used at the moment, unless it is 0.
func CPUOf(u *runtimeapi.CpuUsage, nanoCores int64) *CPU {
	if u == nil {
		return nil
	}
	c := &CPU{Time: at(u.GetTimestamp()), NanoCores: number(u.GetUsageNanoCores()),
		CoreNanoSeconds: number(u.GetUsageCoreNanoSeconds())}
	if c.NanoCores == nil && nanoCores > 0 {
		c.NanoCores = Known(nanoCores)
	}
	return c
}

// MemoryOf gives what a runtime says of memory its form; nil for nothing.
func MemoryOf(u *runtimeapi.MemoryUsage) *Memory {
	if u == nil {
		return nil
	}
	return &Memory{
		Time: at(u.GetTimestamp()), Available: number(u.GetAvailableBytes()), Usage: number(u.GetUsageBytes()),
		WorkingSet: number(u.GetWorkingSetBytes()), RSS: number(u.GetRssBytes()), Faults: number(u.GetPageFaults()),
		MajorFaults: number(u.GetMajorPageFaults()),
	}
}

// SwapOf gives what a runtime says of swap its form; nil for nothing.
func SwapOf(u *runtimeapi.SwapUsage) *Swap {
	if u == nil {
		return nil
	}
	return &Swap{Time: at(u.GetTimestamp()), Available: number(u.GetSwapAvailableBytes()),
		Usage: number(u.GetSwapUsageBytes())}
}

// NetworkOf gives what a runtime says of a pod's network its form; nil for nothing.
func NetworkOf(u *runtimeapi.NetworkUsage) *Network {
	if u.GetDefaultInterface() == nil {
		return nil
	}
	of := func(i *runtimeapi.NetworkInterfaceUsage) Interface {
		return Interface{Name: i.GetName(), RxBytes: number(i.GetRxBytes()), RxErrors: number(i.GetRxErrors()),
			TxBytes: number(i.GetTxBytes()), TxErrors: number(i.GetTxErrors())}
	}
	n := &Network{Time: at(u.GetTimestamp()), Interface: of(u.GetDefaultInterface())}
	for _, i := range u.GetInterfaces() {
		n.Interfaces = append(n.Interfaces, of(i))
	}
	return n
}

// Known returns n, nil when it is negative.
func Known(n int64) *uint64 {
	if n < 0 {
		return nil
	}
	u := uint64(n)
	return &u
}

// Add fills in what the pod as a whole uses from its containers, as far as the runtime did not say it.
func (p *Pod) Add() {
	if p.CPU == nil {
		p.CPU = sumCPU(p.Containers)
	}
	if p.Memory == nil {
		p.Memory = sumMemory(p.Containers)
	}
	if p.Swap == nil {
		p.Swap = sumSwap(p.Containers)
	}
}

func sumCPU(all []Container) *CPU {
	var sum *CPU
	for _, c := range all {
		if c.CPU == nil {
			continue
		}
		if sum == nil {
			sum = &CPU{}
		}
		sum.Time = later(sum.Time, c.CPU.Time)
		add(&sum.NanoCores, c.CPU.NanoCores)
		add(&sum.CoreNanoSeconds, c.CPU.CoreNanoSeconds)
	}
	return sum
}

func sumMemory(all []Container) *Memory {
	var sum *Memory
	for _, c := range all {
		if c.Memory == nil {
			continue
		}
		if sum == nil {
			sum = &Memory{}
		}
		m := c.Memory
		sum.Time = later(sum.Time, m.Time)
		add(&sum.Available, m.Available)
		add(&sum.Usage, m.Usage)
		add(&sum.WorkingSet, m.WorkingSet)
		add(&sum.RSS, m.RSS)
		add(&sum.Faults, m.Faults)
		add(&sum.MajorFaults, m.MajorFaults)
	}
	return sum
}

func sumSwap(all []Container) *Swap {
	var sum *Swap
	for _, c := range all {
		if c.Swap == nil {
			continue
		}
		if sum == nil {
			sum = &Swap{}
		}
		sum.Time = later(sum.Time, c.Swap.Time)
		add(&sum.Available, c.Swap.Available)
		add(&sum.Usage, c.Swap.Usage)
	}
	return sum
}

func add(sum **uint64, n *uint64) {
	if n == nil {
		return
	}
	total := *n
	if *sum != nil {
		total += **sum
	}
	*sum = &total
}

func later(a, b Time) Time {
	if b.After(a.Time) {
		return b
	}
	return a
}
