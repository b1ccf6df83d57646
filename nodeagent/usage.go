package nodeagent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/nodeagent/hostinfo"
	"monoplane.dev/nodeagent/usage"
)

// sampler measures what the node and its pods use when somebody asks, and not oftener than every usageAge: cpu is the
// difference of two samples. Nothing is measured while nobody asks. The zero value is ready.
type sampler struct {
	mu sync.Mutex // held while it measures
	// last is the newest sample, and report what was used since the one before it.
	last   sample
	report *nodev1rpc.UsageReport
	// disks is what pods store.
	disks disks
}

// sample is what was measured at one time.
type sample struct {
	at   time.Time
	cpu  time.Duration
	pods map[string]*usage.Pod
	// What the machine has of memory, what of it is free, how it is used, and what has passed through its network. It is
	// told with the time of the sample, so that whoever asks twice is not told two values of one time.
	total, available int64
	memory           hostinfo.MemoryUse
	interfaces       []hostinfo.Interface
}

// The times of samples.
const (
	// usageAge is how old a report may be.
	usageAge = 15 * time.Second
	// leastWindow is the least time over which cpu is averaged; who asks first waits for it.
	leastWindow = time.Second
	// mostWindow is the age from which a sample says too little of the present.
	mostWindow = 2 * time.Minute
)

// reportUsage answers with what the node and its pods use.
func (a *Agent) reportUsage(ctx context.Context, send func([]byte) error) error {
	_, report, err := a.sampler.get(ctx, a)
	if err != nil {
		return err
	}
	data, err := proto.Marshal(report)
	if err != nil {
		return err
	}
	return send(data)
}

// Usage returns what a simulated node and its pods use: what the runtime says, at once, for there is no machine to
// measure. Agents of machines are asked over their streams.
func (a *Agent) Usage(ctx context.Context) (*nodev1rpc.UsageReport, error) {
	if !a.cfg.Simulated {
		return nil, fmt.Errorf("node %s is not simulated: it tells over its streams what it uses", a.cfg.NodeName)
	}
	pods, err := a.usage(ctx)
	if err != nil {
		return nil, err
	}
	at := now()
	out := usageReport(sample{at: at.Add(-usageAge)}, sample{at: at, pods: pods})
	for _, p := range out.GetPods() {
		for _, c := range p.GetContainers() {
			out.Node.NanoCores += c.GetUsage().GetNanoCores()
			out.Node.Memory += c.GetUsage().GetMemory()
		}
	}
	return out, nil
}

// get returns a sample that is not too old, and what was used since the one before it. Neither may be changed.
func (s *sampler) get(ctx context.Context, a *Agent) (sample, *nodev1rpc.UsageReport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	age := now().Sub(s.last.at)
	if s.report != nil && age < usageAge {
		return s.last, s.report, nil
	}
	if age > mostWindow {
		first, err := a.sample(ctx)
		if err != nil {
			return sample{}, nil, err
		}
		s.last, s.report = first, nil
		if !sleep(ctx, leastWindow) {
			return sample{}, nil, ctx.Err()
		}
	}
	next, err := a.sample(ctx)
	if err != nil {
		return sample{}, nil, err
	}
	s.report = usageReport(s.last, next)
	s.report.Node.Memory = next.total - next.available
	s.last = next
	return s.last, s.report, nil
}

func (a *Agent) sample(ctx context.Context) (sample, error) {
	pods, err := a.usage(ctx)
	out := sample{
		at: now(), cpu: hostinfo.CPUTime(), pods: pods, memory: hostinfo.MemoryInUse(), interfaces: hostinfo.Interfaces(),
	}
	out.total, out.available = hostinfo.Memory()
	return out, err
}

// usageReport says what was used between two samples, and notes the rates in the second one. A container that has
// started between them counts from its start, unless the runtime knows better. Containers of which the runtime cannot
// tell what they use are left out.
func usageReport(before, after sample) *nodev1rpc.UsageReport {
	window := max(after.at.Sub(before.at), time.Millisecond)
	rate := func(cpu, window time.Duration) int64 { return max(0, int64(float64(cpu)/float64(window)*1e9)) }
	out := &nodev1rpc.UsageReport{
		Time: after.at.UnixNano(), Window: int64(window), Node: &nodev1rpc.Usage{NanoCores: rate(after.cpu-before.cpu,
			window)},
	}
	for _, uid := range slices.Sorted(maps.Keys(after.pods)) {
		p := after.pods[uid]
		was := before.pods[uid]
		u := &nodev1rpc.PodUsage{Namespace: p.Namespace, Name: p.Name}
		for _, name := range slices.Sorted(maps.Keys(p.Containers)) {
			c := p.Containers[name]
			b, known := usage.Container{}, false
			if was != nil {
				b, known = was.Containers[name]
			}
			switch {
			case known && b.CPU <= c.CPU: // less: it was restarted
				over := c.At.Sub(b.At)
				if over <= 0 {
					over = window
				}
				c.NanoCores = rate(c.CPU-b.CPU, over)
			case c.NanoCores == 0:
				c.NanoCores = rate(c.CPU, window)
			}
			p.Containers[name] = c
			if !c.Known() {
				continue // That it uses nothing would have it scaled down.
			}
			u.Containers = append(u.Containers, &nodev1rpc.ContainerUsage{
				Name: name, Usage: &nodev1rpc.Usage{NanoCores: c.NanoCores, Memory: c.Memory},
			})
		}
		if len(u.GetContainers()) > 0 {
			out.Pods = append(out.Pods, u)
		}
	}
	return out
}
