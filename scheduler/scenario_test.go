package scheduler_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
	"monoplane.dev/scheduler"
)

var rewrite = flag.Bool("rewrite", false, "write what happened into the scenario files")

// Scenario files hold one command a line; what "show" prints stands below it, indented. Run the test with -rewrite to
// write down what happens now, and read the difference.
//
//	node NAME [cpu=N] [memory=N] [pods=N] [RESOURCE=N] [label:K=V] [taint:K=V:EFFECT] [cordoned]
//	pod NAME [cpu=N] [memory=N] [RESOURCE=N] [init:cpu=N] [sidecar:cpu=N] [overhead:cpu=N] [priority:N] [select:K=V] [affinity:K:OP:V,...]
//	    [tolerate:K=V:EFFECT] [port:N] [gate:NAME] [scheduler:NAME] [label:K=V] [spread:KEY:MAXSKEW:DoNotSchedule|ScheduleAnyway]
//	    [near:KEY:K=V] [apart:KEY:K=V] [prefer-near:KEY:K=V] [prefer-apart:KEY:K=V] [policy:Never] [grace:SECONDS] [guaranteed]
//	    [claim:NAME]
//	set-node ... / set-pod ...   as above, for one that exists
//	sc NAME [late] [by:PROVISIONER] [in:K=V,...]
//	pv NAME storage=N MODE... [class:NAME] [on:K=V,...] [label:K=V] [for:CLAIM]
//	pvc NAME storage=N MODE... [class:NAME] [volume:NAME]
//	delete-node NAME, delete-pod NAME, finish-pod NAME, delete-sc NAME, delete-pv NAME, delete-pvc NAME
//	wait DURATION
//	show
//
// Pods are spread among those labelled foo=bar. Their nodes start them at once, and let them end when their grace is over. "show" says of a
// pod where it is, or on which node room is made for it and why it waits. The controller of claims and volumes runs, too; a class that is
// "late" waits for the first consumer.
//
// spec: SCHED-2, SCHED-4, SCHED-6, SPREAD-5, PRIO-3, PREEMPT-1, PREEMPT-2, PREEMPT-3, PREEMPT-4, ATT-2
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			inWorld(t, scheduler.Config{}, func(w *world) {
				defer w.agents()()
				defer runStorage(w, w.c)()
				w.play(string(want), &got)
			})
			if *rewrite {
				if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got.String() != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
			}
		})
	}
}

func (w *world) play(script string, out *bytes.Buffer) {
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "    ") {
			continue // an expectation
		}
		out.WriteString(line)
		if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(words[0], "#") {
			w.command(words, out)
			synctest.Wait()
		}
	}
}

func (w *world) command(words []string, out *bytes.Buffer) {
	ctx := context.Background()
	name := ""
	if len(words) > 1 {
		name = words[1]
	}
	switch words[0] {
	case "node":
		n := newNode(name)
		w.describeNode(n, words[2:])
		w.addNode(n)
	case "set-node":
		n, err := w.c.Nodes.Get(ctx, &metav1.GetRequest{Name: name})
		w.must(nil, err)
		n = object.Clone(n)
		n.Spec, n.Metadata.ResourceVersion = &corev1.NodeSpec{}, ""
		w.describeNode(n, words[2:])
		w.must(w.c.Nodes.Update(ctx, &corev1.UpdateNodeRequest{Object: n}))
		w.must(w.c.Nodes.UpdateStatus(ctx, &corev1.UpdateNodeRequest{Object: n}))
	case "pod":
		p := newPod(name)
		w.describePod(p, words[2:])
		w.addPod(p)
	case "set-pod":
		p := object.Clone(w.pod(name))
		p.Spec.SchedulingGates, p.Metadata.ResourceVersion = nil, ""
		w.describePod(p, words[2:])
		w.must(w.c.Pods.Update(ctx, &corev1.UpdatePodRequest{Object: p}))
	case "delete-node":
		w.must(w.c.Nodes.Delete(ctx, &metav1.DeleteRequest{Name: name}))
	case "delete-pod":
		w.force(name)
	case "finish-pod":
		p := object.Clone(w.pod(name))
		p.Status.Phase = "Succeeded"
		w.must(w.c.Pods.UpdateStatus(ctx, &corev1.UpdatePodRequest{Object: p}))
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
	return strings.TrimSpace(where + " " + reason(p))
}

func (w *world) describeNode(n *corev1.Node, words []string) {
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

func (w *world) describePod(p *corev1.Pod, words []string) {
	for _, word := range words {
		kind, rest, _ := strings.Cut(word, ":")
		k, v, _ := strings.Cut(rest, "=")
		switch kind {
		case "init", "sidecar":
			c := &corev1.Container{Name: word, Resources: &corev1.ResourceRequirements{Requests: quantities(rest)}}
			if kind == "sidecar" {
				always := "Always"
				c.RestartPolicy = &always
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case "overhead":
			p.Spec.Overhead = quantities(rest)
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
			nodeAffinity(p).RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
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
			using(p, rest)
		case "scheduler":
			p.Spec.SchedulerName = rest
		case "label":
			if p.Metadata.Labels == nil {
				p.Metadata.Labels = map[string]string{}
			}
			p.Metadata.Labels[k] = v
		case "near", "apart", "prefer-near", "prefer-apart":
			addPodTerm(p, kind, rest)
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
			p.Spec.Containers[0].Resources.Requests[k] = &metav1.Quantity{String_: v}
		}
	}
	slices.SortFunc(p.Spec.Tolerations, func(a, b *corev1.Toleration) int { return strings.Compare(a.GetKey(), b.GetKey()) })
}
