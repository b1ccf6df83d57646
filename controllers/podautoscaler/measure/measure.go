// Package measure says how many replicas what pods use asks for: so many that the average is what it should be.
//
// Pods whose use does not count are treated so that a mistake costs little. Those that are going or have failed are
// left out. Those that are not ready yet count as using nothing when more replicas are asked for, and not at all
// otherwise; those of which nothing is known count as using nothing when more are asked for, and as using all that
// they should when fewer are. When that turns the direction round, nothing changes.
//
// It guarantees the answers of Kubernetes' replica calculator, which test/oracle compares. It has no clock and asks
// nobody.
package measure

import (
	"errors"
	"fmt"
	"math"
	"time"

	"monoplane.dev/codec/value"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	metricsv1beta1 "monoplane.dev/api/metrics/v1beta1"
)

const (
	// StartUp is how long after its start the cpu that a pod uses counts only while it is ready.
	StartUp = 5 * time.Minute
	// FirstReadiness is how long after its start a pod that turns unready counts as never having been ready.
	FirstReadiness = 30 * time.Second
	// DefaultTolerance is how far an average may be from what it should be, as a share, before anything changes.
	DefaultTolerance = 0.1
)

// Sample is what a pod uses.
type Sample struct {
	// At is the end of the time over which it was measured, Window the length of it.
	At     time.Time
	Window time.Duration
	// Value is in thousandths.
	Value int64
}

// Tolerance is how far from 1 the share of what is used and what should be may be, in either direction, before
// anything changes.
type Tolerance struct{ Down, Up float64 }

func (t Tolerance) has(share float64) bool { return 1-t.Down <= share && share <= 1+t.Up }

// Pods is what is known of the pods that are scaled.
type Pods struct {
	// All are the pods.
	All []*corev1.Pod
	// Samples are what they use of Resource, by name.
	Samples map[string]Sample
	// Resource is what is measured: "cpu" or "memory". Container names the container of which it is; empty for all.
	Resource, Container string
	// Wanted is how many replicas there are to be as yet.
	Wanted    int32
	Tolerance Tolerance
	Now       time.Time
}

// Proposal is how many replicas there should be.
type Proposal struct {
	Replicas int32
	// Average is what the pods use on average, in thousandths; Utilization the same in percent of what they request,
	// where that was asked.
	Average     int64
	Utilization int32
}

// Samples reads what pods use of a resource, all of them or one container of each. A pod of which a container says
// nothing is missing.
func Samples(list []*metricsv1beta1.PodMetrics, resource, container string) map[string]Sample {
	out := make(map[string]Sample, len(list))
	for _, m := range list {
		s := Sample{At: value.GoTime(m.GetTimestamp()), Window: time.Duration(m.GetWindow().GetDuration())}
		known := container == "" && len(m.GetContainers()) > 0
		for _, c := range m.GetContainers() {
			if container != "" && c.GetName() != container {
				continue
			}
			text, ok := c.GetUsage()[resource]
			q, err := value.Quantity(text)
			if known = ok && err == nil; !known {
				break
			}
			s.Value += q.MilliValue()
		}
		if known {
			out[m.GetMetadata().GetName()] = s
		}
	}
	return out
}

// Utilization proposes a number of replicas that use target percent of what they request, on average.
func (p Pods) Utilization(target int32) (Proposal, error) {
	g, err := p.group()
	if err != nil {
		return Proposal{}, err
	}
	requests := make(map[string]int64, len(p.All))
	for _, pod := range p.All {
		n, err := p.request(pod)
		if err != nil {
			return Proposal{}, err
		}
		requests[pod.GetMetadata().GetName()] = n
	}
	var out Proposal
	weigh := func() (share float64, average int64, percent int32, err error) {
		var used, requested, n int64
		for name, v := range g.counts {
			request, ok := requests[name]
			if !ok {
				continue // a pod that was measured and is gone
			}
			used, requested, n = used+v, requested+request, n+1
		}
		if requested == 0 {
			return 0, 0, 0, errors.New("no metrics returned matched known pods")
		}
		percent = int32(used * 100 / requested) //nolint:gosec // as in Kubernetes
		return float64(percent) / float64(target), used / n, percent, nil
	}
	share, average, percent, err := weigh()
	if err != nil {
		return Proposal{}, err
	}
	out.Average, out.Utilization = average, percent
	out.Replicas, err = p.propose(g, share, func(name string) int64 {
		return requests[name] * int64(max(100, target)) / 100
	}, func() (float64, error) {
		share, _, _, err := weigh()
		return share, err
	})
	return out, err
}

// Average proposes a number of replicas that use target thousandths on average.
func (p Pods) Average(target int64) (Proposal, error) {
	g, err := p.group()
	if err != nil {
		return Proposal{}, err
	}
	weigh := func() (share float64, average int64) {
		var used int64
		for _, v := range g.counts {
			used += v
		}
		average = used / int64(len(g.counts))
		return float64(average) / float64(target), average
	}
	share, average := weigh()
	n, err := p.propose(g, share, func(string) int64 { return target }, func() (float64, error) {
		share, _ := weigh()
		return share, nil
	})
	return Proposal{Replicas: n, Average: average}, err
}

// groups are the pods by how they count.
type groups struct {
	// counts is what pods use that count, by name.
	counts map[string]int64
	// ready is how many of the pods count; unready and missing are the names of those that count in part.
	ready            int
	unready, missing []string
}

// propose decides by the share of what is used and what should be. Full is what a pod of which nothing is known uses
// when fewer replicas are asked for; again weighs all pods once more.
func (p Pods) propose(
	g *groups, share float64, full func(name string) int64, again func() (float64, error),
) (int32, error) {
	upWithUnready := len(g.unready) > 0 && share > 1
	if !upWithUnready && len(g.missing) == 0 {
		if p.Tolerance.has(share) {
			return p.Wanted, nil
		}
		return whole(share * float64(g.ready)), nil
	}
	for _, name := range g.missing {
		switch {
		case share < 1:
			g.counts[name] = full(name)
		case share > 1:
			g.counts[name] = 0
		}
	}
	if upWithUnready {
		for _, name := range g.unready {
			g.counts[name] = 0
		}
	}
	careful, err := again()
	if err != nil {
		return 0, err
	}
	if p.Tolerance.has(careful) || share < 1 && careful > 1 || share > 1 && careful < 1 {
		return p.Wanted, nil
	}
	n := whole(careful * float64(len(g.counts)))
	if careful < 1 && n > p.Wanted || careful > 1 && n < p.Wanted {
		return p.Wanted, nil
	}
	return n, nil
}

// whole rounds up to a number of replicas.
func whole(n float64) int32 {
	if n = math.Ceil(n); n >= math.MaxInt32 {
		return math.MaxInt32
	}
	return int32(n)
}

// group sorts the pods by how they count.
func (p Pods) group() (*groups, error) {
	if len(p.All) == 0 {
		return nil, errors.New("no pods returned by selector while calculating replica count")
	}
	g := &groups{counts: make(map[string]int64, len(p.All))}
	for name, s := range p.Samples {
		g.counts[name] = s.Value
	}
	for _, pod := range p.All {
		name := pod.GetMetadata().GetName()
		s, known := p.Samples[name]
		switch phase := pod.GetStatus().GetPhase(); {
		case pod.GetMetadata().GetDeletionTimestamp() != nil || phase == "Failed":
			delete(g.counts, name)
		case phase == "Pending":
			g.unready = append(g.unready, name)
			delete(g.counts, name)
		case !known:
			g.missing = append(g.missing, name)
		case p.Resource == resources.CPU && p.starting(pod, s):
			g.unready = append(g.unready, name)
			delete(g.counts, name)
		default:
			g.ready++
		}
	}
	if len(g.counts) == 0 {
		return nil, errors.New("did not receive metrics for targeted pods (pods might be unready)")
	}
	return g, nil
}

// starting says whether a pod uses cpu to become ready, which says nothing about its work.
func (p Pods) starting(pod *corev1.Pod, s Sample) bool {
	var c *corev1.PodCondition
	for _, x := range pod.GetStatus().GetConditions() {
		if x.GetType() == "Ready" {
			c = x
			break
		}
	}
	if c == nil || pod.GetStatus().GetStartTime() == nil {
		return true
	}
	unready, since := c.GetStatus() == "False", value.GoTime(c.GetLastTransitionTime())
	start := value.GoTime(pod.GetStatus().GetStartTime())
	if start.Add(StartUp).After(p.Now) {
		return unready || s.At.Before(since.Add(s.Window)) // some of what was measured is from before
	}
	return unready && start.Add(FirstReadiness).After(since)
}

// request returns what a pod, or its container, requests of the resource, in thousandths.
func (p Pods) request(pod *corev1.Pod) (int64, error) {
	name, spec := pod.GetMetadata().GetName(), pod.GetSpec()
	if p.Container == "" && resources.ForWhole(spec) {
		q, ok := resources.Requests(spec).Get(p.Resource)
		if !ok {
			return 0, fmt.Errorf("missing pod-level request for %s in Pod %s", p.Resource, name)
		}
		return q.MilliValue(), nil
	}
	var sum int64
	found := p.Container == ""
	for _, c := range running(spec) {
		if p.Container != "" && p.Container != c.GetName() {
			continue
		}
		found = true
		text, ok := c.GetResources().GetRequests()[p.Resource]
		if !ok {
			return 0, fmt.Errorf("missing request for %s in container %s of Pod %s", p.Resource, c.GetName(), name)
		}
		sum += milli(text)
	}
	if !found {
		return 0, fmt.Errorf("container %s not found in Pod %s", p.Container, name)
	}
	return sum, nil
}

// running returns the containers that run as long as the pod does.
func running(spec *corev1.PodSpec) []*corev1.Container {
	all := spec.GetContainers()[:len(spec.GetContainers()):len(spec.GetContainers())]
	for _, c := range spec.GetInitContainers() {
		if c.GetRestartPolicy() == "Always" {
			all = append(all, c)
		}
	}
	return all
}

func milli(text *metav1.Quantity) int64 {
	q, err := value.Quantity(text)
	if err != nil {
		return 0 // validation lets none through
	}
	return q.MilliValue()
}
