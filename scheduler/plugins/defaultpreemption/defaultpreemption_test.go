package defaultpreemption_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/plugins/defaultpreemption"
	"monoplane.dev/scheduler/plugins/nodeaffinity"
	"monoplane.dev/scheduler/plugins/noderesources"
	"monoplane.dev/scheduler/plugins/prioritysort"
)

// nowhere binds nothing.
type nowhere struct{}

func (nowhere) Name() string { return "Nowhere" }

func (nowhere) Bind(context.Context, *framework.CycleState, *framework.PodInfo, string) *framework.Status {
	return nil
}

func profile(t *testing.T, args defaultpreemption.Args) *framework.Profile {
	t.Helper()
	preemption, err := defaultpreemption.New(args)
	if err != nil {
		t.Fatal(err)
	}
	fit, err := noderesources.New(noderesources.FitArgs{})
	if err != nil {
		t.Fatal(err)
	}
	affinity, err := nodeaffinity.New(nodeaffinity.Args{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := framework.NewProfile("test", 0, framework.Enabled{Plugin: prioritysort.Plugin{}},
		framework.Enabled{Plugin: affinity},
		framework.Enabled{Plugin: fit}, framework.Enabled{Plugin: preemption}, framework.Enabled{Plugin: nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// pod reads "name priority cpu [word...]", where the words are app=VALUE, started=SECOND, doomed, preempted, deleted,
// never, only=NODE.
func pod(t *testing.T, line string) *framework.PodInfo {
	t.Helper()
	var priority int32
	var name, cpu string
	if _, err := fmt.Sscan(line, &name, &priority, &cpu); err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, Uid: name},
		Spec: &corev1.PodSpec{Priority: &priority, Containers: []*corev1.Container{{
			Resources: &corev1.ResourceRequirements{Requests: map[string]*metav1.Quantity{"cpu": {String_: cpu}}},
		}}},
		Status: &corev1.PodStatus{},
	}
	info := func() *framework.PodInfo { return framework.NewPodInfo(p) }
	for _, word := range strings.Fields(line)[3:] {
		k, v, _ := strings.Cut(word, "=")
		switch k {
		case "app":
			p.Metadata.Labels = map[string]string{k: v}
		case "started":
			p.Status.StartTime = &metav1.Time{}
			if _, err := fmt.Sscan(v, &p.Status.StartTime.Seconds); err != nil {
				t.Fatal(err)
			}
		case "doomed":
			return info().AsDoomed(true)
		case "preempted", "deleted":
			p.Metadata.DeletionTimestamp = &metav1.Time{Seconds: 1}
			if k == "preempted" {
				p.Status.Conditions = []*corev1.PodCondition{{Type: "DisruptionTarget", Status: "True",
					Reason: "PreemptionByScheduler"}}
			}
		case "never":
			p.Spec.PreemptionPolicy = &[]string{"Never"}[0]
		case "only":
			p.Spec.NodeSelector = map[string]string{"name": v}
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	return info()
}

// cluster has nodes of 4 cpus, each with the pods of a text: "name 0 1; other 5 2".
func cluster(t *testing.T, nodes ...string) *framework.Snapshot {
	t.Helper()
	s := framework.NewSnapshot()
	for i, pods := range nodes {
		name := fmt.Sprint("n", i+1)
		n := framework.NewNodeInfo(name, &corev1.Node{
			Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}, Spec: &corev1.NodeSpec{},
			Status: &corev1.NodeStatus{Allocatable: map[string]*metav1.Quantity{"cpu": {String_: "4"},
				"pods": {String_: "10"}}},
		})
		for line := range strings.SplitSeq(pods, ";") {
			if strings.TrimSpace(line) != "" {
				n = n.WithPod(pod(t, line))
			}
		}
		s.Set(name, n)
	}
	return s
}

// outcome is what was decided: "n1: victim victim", or the message.
func outcome(d framework.Decision) string {
	switch {
	case d.Err != nil:
		return d.Err.Error()
	case d.Node != "":
		return "fits on " + d.Node
	case d.Nomination == nil || d.Nomination.Node == "":
		return d.Diagnosis.PostFilter
	}
	words := []string{d.Nomination.Node + ":"}
	for _, v := range d.Nomination.Victims {
		words = append(words, v.Key.Name)
	}
	return strings.Join(words, " ")
}

// budget is about the pods of an app.
func budget(app string, allowed int32, disrupted ...string) *framework.Budget {
	b := &framework.Budget{
		Namespace: "ns", Selector: labels.SelectorFromSet(labels.Set{"app": app}), Allowed: allowed,
		Disrupted: map[string]struct{}{},
	}
	for _, name := range disrupted {
		b.Disrupted[name] = struct{}{}
	}
	return b
}

const (
	inVain  = "preemption: 0/%d nodes are available: %s."
	none    = "No preemption victims found for incoming pod"
	useless = "Preemption is not helpful for scheduling"
)

// spec: PREEMPT-1, PREEMPT-3, PREEMPT-4, PRIO-3
func TestOutcomes(t *testing.T) {
	for _, x := range []struct {
		name, pod string
		nodes     []string
		budgets   []*framework.Budget
		want      string
	}{
		{"it fits", "new 5 1", []string{"a 0 3"}, nil, "fits on n1"},
		{"no nodes", "new 5 1", nil, nil, ""},
		{"the one that is lower", "new 5 1", []string{"a 5 2; b 4 2"}, nil, "n1: b"},
		{"equals and higher ones stay", "new 5 1", []string{"a 5 2; b 6 2"}, nil, fmt.Sprintf(inVain, 1, "1 "+none)},
		{"no priority is 0", "new 0 1", []string{"a -1 4"}, nil, "n1: a"},
		{"too few lower ones", "new 5 3", []string{"a 5 2; b 4 2"}, nil, fmt.Sprintf(inVain, 1, "1 Insufficient cpu")},
		{"no removal helps", "new 5 5", []string{"a 0 2"}, nil, fmt.Sprintf(inVain, 1, "1 "+useless)},
		{
			"each node for its own reason", "new 5 3 only=n1", []string{"a 5 2; b 4 2", "c 0 4"}, nil,
			fmt.Sprintf(inVain, 2, "1 Insufficient cpu, 1 "+useless),
		},
		{"all three reasons", "new 5 3", []string{"a 5 4", "b 5 2; c 0 2"}, nil,
			fmt.Sprintf(inVain, 2, "1 Insufficient cpu, 1 "+none)},
		{"never", "new 5 1 never", []string{"a 0 4"}, nil, "preemption: not eligible due to preemptionPolicy=Never."},
		{"a victim that would not preempt itself", "new 5 1", []string{"a 4 4 never"}, nil, "n1: a"},
		{"the more important is put back first", "new 9 2", []string{"a 1 2; b 2 2"}, nil, "n1: a"},
		{"then the one that has run for longer", "new 9 2", []string{"a 1 2 started=7; b 1 2 started=6"}, nil, "n1: a"},
		{"as many as fit, not only the first", "new 9 2", []string{"a 3 2; b 2 1; c 1 1"}, nil, "n1: b c"},
		{"a small one comes back after a big one could not", "new 9 3", []string{"a 3 3; b 2 1"}, nil, "n1: a"},
		{"victims by importance", "new 9 4", []string{"a 1 1; b 3 1; c 2 1; d 3 1 started=5"}, nil, "n1: d b c a"},
		{"a budget protects the less important", "new 9 2", []string{"a 1 2 app=x; b 2 2"},
			[]*framework.Budget{budget("x", 0)}, "n1: b"},
		{"a budget that allows one", "new 9 2", []string{"a 1 2 app=x; b 2 2"}, []*framework.Budget{budget("x", 1)},
			"n1: a"},
		{
			"what a budget allows goes to the important first", "new 9 2", []string{"a 1 2 app=x; b 2 2 app=x"},
			[]*framework.Budget{budget("x", 1)}, "n1: b",
		},
		{"one that is counted already", "new 9 2", []string{"a 1 2 app=x; b 2 2"}, []*framework.Budget{budget("x", 0, "a")},
			"n1: a"},
		{"budgets of others", "new 9 2", []string{"a 1 2; b 2 2"}, []*framework.Budget{budget("x", 0)}, "n1: a"},
		{
			"an empty selector is about none", "new 9 2", []string{"a 1 2 app=x; b 2 2"},
			[]*framework.Budget{{Namespace: "ns", Selector: labels.Everything()}}, "n1: a",
		},
		{
			"of another namespace", "new 9 2", []string{"a 1 2 app=x; b 2 2"},
			[]*framework.Budget{{Namespace: "else", Selector: labels.SelectorFromSet(labels.Set{"app": "x"})}}, "n1: a",
		},
		{"budgets are best effort", "new 9 2", []string{"a 1 4 app=x"}, []*framework.Budget{budget("x", 0)}, "n1: a"},
		{"a node that breaks no budget", "new 9 2", []string{"a 1 4 app=x", "b 8 4"}, []*framework.Budget{budget("x", 0)},
			"n2: b"},
		{"the node with the lower victims", "new 9 2", []string{"a 2 4", "b 1 4", "c 3 4"}, nil, "n2: b"},
		{"with fewer negative ones", "new 9 4", []string{"a -5 2; b -5 2", "c -5 4"}, nil, "n2: c"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := cluster(t, x.nodes...)
			s.SetBudgets(x.budgets)
			p := profile(t, defaultpreemption.DefaultArgs())
			if got := outcome(p.Schedule(&framework.CycleState{}, pod(t, x.pod), s, framework.NewSearcher(1))); got != x.want {
				t.Errorf("got %q, want %q", got, x.want)
			}
		})
	}
}

// A pod waits for victims on the node that is nominated for it, and for nothing else.
// spec: PREEMPT-4
func TestWaitsForVictims(t *testing.T) {
	const waiting = "preemption: not eligible due to a terminating pod on the nominated node."
	for _, x := range []struct{ name, pod, first, want string }{
		{"a victim on its way out", "new 5 1", "a 0 4 preempted", waiting},
		{"one that is about to be deleted", "new 5 1", "a 0 4 doomed", waiting},
		{"one of several", "new 5 1", "a 0 2; b 0 2 preempted", waiting},
		{"deleted by somebody else", "new 5 1", "a 0 4 deleted", "n1: a"},
		{"not lower than the pod", "new 5 1", "a 5 3 preempted; b 0 1", "n1: b"},
		{"none", "new 5 1", "a 0 4", "n1: a"},
		{"no removal helps there any more", "new 5 1 only=n2", "a 0 4 preempted", "n2: z"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := cluster(t, x.first, "z 4 4")
			p := pod(t, x.pod)
			s.SetNominated(p.UID, "n1")
			s.Set("n1", s.Node("n1").WithNominated([]*framework.PodInfo{p}))
			d := profile(t, defaultpreemption.DefaultArgs()).Schedule(&framework.CycleState{}, p, s, framework.NewSearcher(1))
			if got := outcome(d); got != x.want {
				t.Errorf("got %q, want %q", got, x.want)
			}
			if x.want == waiting && d.Nomination != nil {
				t.Error("the nomination does not stay")
			}
		})
	}
}

// The search ends when there are enough candidates, but not before there is one, nor before there is one that breaks
// no budget.
// spec: PREEMPT-3
func TestEnoughCandidates(t *testing.T) {
	protected, cheaper := "a 1 4 app=x", "b 2 4"
	for _, x := range []struct {
		name  string
		args  defaultpreemption.Args
		nodes []string
		want  string
	}{
		{"one is enough", defaultpreemption.Args{MinCandidateNodesAbsolute: 1}, []string{"a 3 4", cheaper}, "n1: a"},
		{"two are better", defaultpreemption.Args{MinCandidateNodesAbsolute: 2}, []string{"a 3 4", cheaper}, "n2: b"},
		{"a share that is less than one", defaultpreemption.Args{MinCandidateNodesPercentage: 1}, []string{"a 3 4", cheaper},
			"n1: a"},
		{"not one that breaks a budget", defaultpreemption.Args{MinCandidateNodesAbsolute: 1}, []string{protected, cheaper},
			"n2: b"},
		{"unless there are no others", defaultpreemption.Args{MinCandidateNodesAbsolute: 1}, []string{protected, "c 9 4"},
			"n1: a"},
	} {
		s := cluster(t, x.nodes...)
		s.SetBudgets([]*framework.Budget{budget("x", 0)})
		d := profile(t, x.args).Schedule(&framework.CycleState{}, pod(t, "new 9 1"), s, framework.NewSearcher(1))
		if got := outcome(d); got != x.want {
			t.Errorf("%s: got %q, want %q", x.name, got, x.want)
		}
	}
}
