// Package scenario plays scenario files, which say in plain words what happens to nodes, pods and volumes, and what
// has come of it. A file holds one command a line; what "show" prints stands below it, indented.
//
//	node NAME [cpu=N] [memory=N] [pods=N] [RESOURCE=N] [label:K=V] [taint:K=V:EFFECT] [cordoned]
//	pod NAME [cpu=N] [memory=N] [RESOURCE=N] [init:cpu=N] [sidecar:cpu=N] [priority:N]
//	    [select:K=V] [affinity:K:OP:V,...] [tolerate:K=V:EFFECT] [port:N] [gate:NAME] [scheduler:NAME] [label:K=V]
//	    [spread:KEY:MAXSKEW:DoNotSchedule|ScheduleAnyway] [near:KEY:K=V] [apart:KEY:K=V] [prefer-near:KEY:K=V]
//	    [prefer-apart:KEY:K=V] [policy:Never] [grace:SECONDS] [guaranteed] [claim:NAME]
//	set-node ... / set-pod ...   as above, for one that exists
//	sc NAME [late] [by:PROVISIONER] [in:K=V,...]
//	pv NAME storage=N MODE... [class:NAME] [on:K=V,...] [label:K=V] [for:CLAIM]
//	pvc NAME storage=N MODE... [class:NAME] [volume:NAME]
//	delete-node NAME, delete-pod NAME, finish-pod NAME, delete-sc NAME, delete-pv NAME, delete-pvc NAME
//	wait DURATION
//	show
//
// Pods are spread among those labelled foo=bar. "show" says of a pod where it is, or on which node room is made for it
// and why it waits. A class that is "late" waits for the first consumer.
package scenario

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/object"
	"monoplane.dev/scheduler/test/objects"
)

// player does what a script says.
type player struct {
	testing.TB
	server *apitest.Server
	// c is the administrator's.
	c *client.Client
}

func newPlayer(t testing.TB, s *apitest.Server) *player { return &player{t, s, s.Admin()} }

// Play does what the script says, one command when everything has settled after the other, in the bubble of virtual
// time that it is called in, and returns the script with what there was to show.
func Play(t testing.TB, s *apitest.Server, script string) string {
	t.Helper()
	var out bytes.Buffer
	w := newPlayer(t, s)
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "    ") {
			continue // an expectation
		}
		out.WriteString(line)
		if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(words[0], "#") {
			w.command(words, &out)
			synctest.Wait()
		}
	}
	return out.String()
}

func (w *player) must(_ any, err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// pod returns a pod as it is when everything has settled.
func (w *player) pod(name string) *corev1.Pod {
	w.Helper()
	synctest.Wait()
	p, err := w.c.Pods.Get(context.Background(), &metav1.GetRequest{Namespace: "ns", Name: name})
	w.must(nil, err)
	return p
}

func (w *player) command(words []string, out *bytes.Buffer) {
	ctx := context.Background()
	name := ""
	if len(words) > 1 {
		name = words[1]
	}
	switch words[0] {
	case "node":
		n := objects.Node(name)
		w.describeNode(n, words[2:])
		w.must(w.server.Agent(name).Nodes.Create(ctx, &corev1rpc.CreateNodeRequest{Object: n}))
	case "set-node":
		n, err := w.c.Nodes.Get(ctx, &metav1.GetRequest{Name: name})
		w.must(nil, err)
		n = object.Clone(n)
		n.Spec, n.Metadata.ResourceVersion = &corev1.NodeSpec{}, ""
		w.describeNode(n, words[2:])
		w.must(w.c.Nodes.Update(ctx, &corev1rpc.UpdateNodeRequest{Object: n}))
		w.must(w.c.Nodes.UpdateStatus(ctx, &corev1rpc.UpdateNodeRequest{Object: n}))
	case "pod":
		p := objects.Pod(name)
		w.describePod(p, words[2:])
		Classify(w, w.c, p)
		w.must(w.c.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "ns", Object: p}))
	case "set-pod":
		p := object.Clone(w.pod(name))
		p.Spec.SchedulingGates, p.Metadata.ResourceVersion = nil, ""
		w.describePod(p, words[2:])
		w.must(w.c.Pods.Update(ctx, &corev1rpc.UpdatePodRequest{Object: p}))
	case "delete-node":
		w.must(w.c.Nodes.Delete(ctx, &metav1.DeleteRequest{Name: name}))
	case "delete-pod":
		zero := int64(0)
		w.must(w.c.Pods.Delete(ctx, &metav1.DeleteRequest{Namespace: "ns", Name: name, GracePeriodSeconds: &zero}))
	case "finish-pod":
		p := object.Clone(w.pod(name))
		p.Status.Phase = "Succeeded"
		w.must(w.server.Agent(p.GetSpec().GetNodeName()).Pods.UpdateStatus(ctx, &corev1rpc.UpdatePodRequest{Object: p}))
	case "sc", "pv", "pvc", "delete-sc", "delete-pv", "delete-pvc":
		w.storage(words)
	case "wait":
		d, err := time.ParseDuration(name)
		w.must(nil, err)
		time.Sleep(d) // virtual
	case "show":
		l, err := w.c.Pods.List(ctx, &metav1.ListRequest{})
		w.must(nil, err)
		for _, p := range l.GetItems() {
			fmt.Fprintf(out, "    %s: %s\n", p.GetMetadata().GetName(), whereabouts(p))
		}
		w.showClaims(out)
	default:
		w.Fatalf("unknown command %q", words[0])
	}
}

// whereabouts says where a pod is, or what it waits for.
func whereabouts(p *corev1.Pod) string {
	where := p.GetSpec().GetNodeName()
	if where == "" {
		where = "-"
	}
	if p.GetMetadata().GetDeletionTimestamp() != nil {
		where += " terminating"
	}
	if n := p.GetStatus().GetNominatedNodeName(); n != "" {
		where += " nominated to " + n
	}
	return strings.TrimSpace(where + " " + objects.Reason(p))
}

func (w *player) describeNode(n *corev1.Node, words []string) {
	for _, word := range words {
		kind, rest, _ := strings.Cut(word, ":")
		switch {
		case word == "cordoned":
			n.Spec.Unschedulable = true
		case kind == "label":
			k, v, _ := strings.Cut(rest, "=")
			n.Metadata.Labels[k] = v
		case kind == "taint":
			k, v, e := keyed(rest)
			n.Spec.Taints = append(n.Spec.Taints, &corev1.Taint{Key: k, Value: v, Effect: e})
		default:
			k, v, ok := strings.Cut(word, "=")
			if !ok {
				w.Fatalf("unknown word %q", word)
			}
			n.Status.Allocatable[k] = &metav1.Quantity{String_: v}
		}
	}
}

// keyed splits "key=value:effect".
func keyed(s string) (key, value, effect string) {
	kv, effect, _ := strings.Cut(s, ":")
	key, value, _ = strings.Cut(kv, "=")
	return key, value, effect
}

func (w *player) describePod(p *corev1.Pod, words []string) {
	for _, word := range words {
		kind, rest, _ := strings.Cut(word, ":")
		k, v, _ := strings.Cut(rest, "=")
		switch kind {
		case "init", "sidecar":
			c := &corev1.Container{
				Name: fmt.Sprint(kind, len(p.Spec.InitContainers)), Image: "host",
				Resources: &corev1.ResourceRequirements{Requests: objects.Quantities(rest)},
			}
			if kind == "sidecar" {
				always := "Always"
				c.RestartPolicy = &always
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case "priority":
			n, err := strconv.ParseInt(rest, 10, 32)
			w.must(nil, err)
			v := int32(n)
			p.Spec.Priority = &v
		case "policy":
			p.Spec.PreemptionPolicy = &rest
		case "guaranteed":
			p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
		case "grace":
			n, err := strconv.ParseInt(rest, 10, 64)
			w.must(nil, err)
			p.Spec.TerminationGracePeriodSeconds = &n
		case "select":
			if p.Spec.NodeSelector == nil {
				p.Spec.NodeSelector = map[string]string{}
			}
			p.Spec.NodeSelector[k] = v
		case "affinity":
			parts := strings.SplitN(rest, ":", 3)
			r := &corev1.NodeSelectorRequirement{Key: parts[0], Operator: parts[1]}
			if len(parts) == 3 {
				r.Values = strings.Split(parts[2], ",")
			}
			objects.NodeAffinity(p).RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
				NodeSelectorTerms: []*corev1.NodeSelectorTerm{{MatchExpressions: []*corev1.NodeSelectorRequirement{r}}},
			}
		case "tolerate":
			k, v, e := keyed(rest)
			t := &corev1.Toleration{Key: k, Value: v, Effect: e, Operator: "Equal"}
			if v == "" {
				t.Operator = "Exists"
			}
			p.Spec.Tolerations = append(p.Spec.Tolerations, t)
		case "port":
			n, err := strconv.ParseInt(rest, 10, 32)
			w.must(nil, err)
			c := p.Spec.Containers[0]
			c.Ports = append(c.Ports, &corev1.ContainerPort{ContainerPort: int32(n), HostPort: int32(n), Protocol: "TCP"})
		case "gate":
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, &corev1.PodSchedulingGate{Name: rest})
		case "claim":
			objects.Use(p, rest)
		case "scheduler":
			p.Spec.SchedulerName = rest
		case "label":
			if p.Metadata.Labels == nil {
				p.Metadata.Labels = map[string]string{}
			}
			p.Metadata.Labels[k] = v
		case "near", "apart", "prefer-near", "prefer-apart":
			objects.AddPodTerm(p, kind, rest)
		case "spread":
			parts := strings.Split(rest, ":")
			n, err := strconv.ParseInt(parts[1], 10, 32)
			w.must(nil, err)
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, &corev1.TopologySpreadConstraint{
				TopologyKey: parts[0], MaxSkew: int32(n), WhenUnsatisfiable: parts[2],
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"foo": "bar"}},
			})
		default:
			k, v, ok := strings.Cut(word, "=")
			if !ok {
				w.Fatalf("unknown word %q", word)
			}
			resources := p.Spec.Containers[0].Resources
			resources.Requests[k] = &metav1.Quantity{String_: v}
			if strings.Contains(k, "/") { // of which nobody gets more than requested
				if resources.Limits == nil {
					resources.Limits = map[string]*metav1.Quantity{}
				}
				resources.Limits[k] = &metav1.Quantity{String_: v}
			}
		}
	}
	slices.SortFunc(p.Spec.Tolerations, func(a, b *corev1.Toleration) int {
		return strings.Compare(a.GetKey(),
			b.GetKey())
	})
}
