package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/rules/qos"
	podlevel "monoplane.dev/rules/resources"
)

// change is what one container is to be changed from and to.
type change struct {
	podstate.Target

	name     string
	was, now *runtimeapi.LinuxContainerResources
}

// actuate gives running containers, and the pod's cgroup, what was granted: the group grows before the containers
// change, and shrinks after them; memory comes before processors, and what becomes less before what becomes more, so
// that no sum is exceeded on the way. It stops at the first failure. All of it can be done again. spec: OBJ-10
func (j job) actuate(ctx context.Context, a podstate.Actuate) podstate.Input {
	out := podstate.Actuated{Serial: a.Serial, Done: make(map[string]*podstate.Settings, len(a.Targets))}
	out.Err = text(j.carryOut(ctx, a, &out))
	return out
}

func (j job) carryOut(ctx context.Context, a podstate.Actuate, out *podstate.Actuated) error {
	f := j.facts()
	changes := make([]change, len(a.Targets))
	for i, t := range a.Targets {
		to := podstate.ContainerAt(a.To, t.Index)
		changes[i] = change{Target: t, name: to.GetName(),
			was: criconfig.Resources(a.From, podstate.ContainerAt(a.From, t.Index), f),
			now: criconfig.Resources(a.To, to, f)}
	}
	was, now := criconfig.PodResources(a.From, f), criconfig.PodResources(a.To, f)
	if err := j.checkUsage(ctx, changes, was, now); err != nil {
		return err
	}
	if a.Group {
		if err := j.setGroup(ctx, larger(was, now), a); err != nil {
			return err
		}
	}
	memory := func(r *runtimeapi.LinuxContainerResources) int64 { return unlimited(r.GetMemoryLimitInBytes()) }
	for _, c := range inOrderOf(changes, memory) {
		if memory(c.was) == memory(c.now) {
			continue
		}
		step := proto.CloneOf(c.now)
		step.CpuShares, step.CpuQuota, step.CpuPeriod = c.was.GetCpuShares(), c.was.GetCpuQuota(), c.was.GetCpuPeriod()
		if err := j.update(ctx, c, step); err != nil {
			return err
		}
	}
	processors := func(r *runtimeapi.LinuxContainerResources) int64 { return unlimited(r.GetCpuQuota()) }
	for _, c := range inOrderOf(changes, processors) {
		if err := j.update(ctx, c, c.now); err != nil { // this one brings all, whatever the container had
			return err
		}
		in, err := j.agent.instance(ctx, c.ID, j.warnLimits(c.name))
		if err != nil {
			return fmt.Errorf("container %s: %s", c.name, text(err))
		}
		out.Done[c.ID] = in.Settings
	}
	if a.Group {
		if err := j.setGroup(ctx, now, a); err != nil {
			return err
		}
	}
	out.Group = a.Group
	return nil
}

// inOrderOf returns the changes, those first by which something becomes less.
func inOrderOf(all []change, of func(*runtimeapi.LinuxContainerResources) int64) []change {
	out := slices.Clone(all)
	slices.SortStableFunc(out, func(a, b change) int {
		less := func(c change) int {
			if of(c.now) < of(c.was) {
				return 0
			}
			return 1
		}
		return less(a) - less(b)
	})
	return out
}

// unlimited returns a limit, of which 0 means none, as a number that can be compared.
func unlimited(n int64) int64 {
	if n <= 0 {
		return 1<<63 - 1
	}
	return n
}

// larger returns settings by which nobody has less than by either of two.
func larger(a, b *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	r := proto.CloneOf(b)
	r.CpuShares = max(a.GetCpuShares(), b.GetCpuShares())
	if unlimited(a.GetCpuQuota()) > unlimited(b.GetCpuQuota()) {
		r.CpuQuota, r.CpuPeriod = a.GetCpuQuota(), a.GetCpuPeriod()
	}
	if unlimited(a.GetMemoryLimitInBytes()) > unlimited(b.GetMemoryLimitInBytes()) {
		r.MemoryLimitInBytes = a.GetMemoryLimitInBytes()
	}
	return r
}

// update changes one container. The runtime has as long as it has to make one; what is not answered by then may be
// carried out all the same.
func (j job) update(ctx context.Context, c change, r *runtimeapi.LinuxContainerResources) error {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	_, err := j.agent.cfg.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: c.ID, Linux: r,
	})
	if err != nil {
		return fmt.Errorf("container %s: %s", c.name, text(err))
	}
	return nil
}

// setGroup sets what the pod as a whole may use. Where it has no group of its own only its containers are limited,
// which is told if the pod asks for more than that.
func (j job) setGroup(ctx context.Context, r *runtimeapi.LinuxContainerResources, a podstate.Actuate) error {
	g := j.agent.groups
	if j.agent.limitsPods {
		err := j.limitSandboxes(ctx, r)
		switch {
		case status.Code(err) == codes.Unimplemented: // There is nothing to try again.
			j.settleGroup(ctx, "", err)
		case err != nil:
			return fmt.Errorf("the cgroup of the pod: %s", text(err))
		}
		return nil
	}
	if g == nil {
		before, whole := a.From.GetSpec().GetResources().GetLimits(), a.To.GetSpec().GetResources().GetLimits()
		if (whole[podlevel.CPU] != nil || whole[podlevel.Memory] != nil) && len(before) == 0 {
			j.settleGroup(ctx, "", j.prepareGroup())
		}
		return nil
	}
	uid, class := uidOf(j.pod), qos.Of(j.pod)
	err := g.Prepare(uid, class, r)
	if err == nil {
		err = g.Settle(ctx, uid, class, r)
	}
	if err != nil {
		return fmt.Errorf("the cgroup of the pod: %w", err)
	}
	return nil
}

// checkUsage refuses limits of memory below what is used now, before anything is changed: depending on the kernel they
// could not be set, or would end the container.
func (j job) checkUsage(ctx context.Context, changes []change, was, now *runtimeapi.LinuxContainerResources) error {
	falls := func(was, now *runtimeapi.LinuxContainerResources) bool {
		return unlimited(now.GetMemoryLimitInBytes()) < unlimited(was.GetMemoryLimitInBytes())
	}
	whole := falls(was, now) && j.agent.hasGroup()
	if !whole && !slices.ContainsFunc(changes, func(c change) bool { return falls(c.was, c.now) }) {
		return nil
	}
	used, err := j.memoryUsed(ctx)
	if err != nil {
		return fmt.Errorf("unable to read memory usage for pod %q: %s", j.pod.GetMetadata().GetName(), text(err))
	}
	var errs []error
	var sum uint64
	for _, n := range used {
		sum += n
	}
	if limit := uint64(max(0, now.GetMemoryLimitInBytes())); whole && sum >= limit {
		errs = append(errs, fmt.Errorf("attempting to set pod memory limit (%d) below current usage (%d)", limit, sum))
	}
	for _, c := range changes {
		limit := uint64(max(0, c.now.GetMemoryLimitInBytes()))
		if n := used[c.ID]; falls(c.was, c.now) && n >= limit {
			errs = append(errs, fmt.Errorf("attempting to set container %q memory limit (%d) below current usage (%d)",
				c.name, limit, n))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("cannot decrease memory limits: %w", errors.Join(errs...))
	}
	return nil
}

// memoryUsed returns how much memory the pod's containers use, by id, as far as the runtime can tell.
func (j job) memoryUsed(ctx context.Context) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	all, err := j.agent.cfg.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{
		Filter: &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{criconfig.LabelPodUID: uidOf(j.pod)}},
	})
	if status.Code(err) == codes.Unimplemented {
		return nil, nil
	}
	out := make(map[string]uint64, len(all.GetStats()))
	for _, s := range all.GetStats() {
		out[s.GetAttributes().GetId()] = s.GetMemory().GetUsageBytes().GetValue()
	}
	return out, err
}
