package podtopologyspread

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/scheduler/framework"
)

// grouped gives a cluster groups from lines "namespace kind[/name] selector", where the selector may be missing.
func grouped(t *testing.T, s *framework.Snapshot, lines ...string) *framework.Snapshot {
	t.Helper()
	var list []*framework.Group
	for _, l := range lines {
		words := append(strings.Fields(l), "")
		selector, err := labels.Parse(words[2])
		if err != nil {
			t.Fatal(err)
		}
		kind, name, workload := strings.Cut(words[1], "/")
		g := &framework.Group{Namespace: words[0], Selector: selector, Service: !workload}
		if workload {
			g.APIVersion, g.Kind, g.Name = "apps/v1", kind, name
		}
		list = append(list, g)
	}
	s.SetGroups(list)
	return s
}

// list is the plugin with these constraints by default.
func list(t *testing.T, constraints ...*constraint) *Plugin {
	t.Helper()
	for _, c := range constraints {
		c.LabelSelector = nil
	}
	p, err := NewWith(Args{DefaultingType: List, DefaultConstraints: constraints})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func system(t *testing.T) *Plugin {
	t.Helper()
	p, err := NewWith(Args{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// owned gives a pod owners, each "apiVersion kind name", the first of which is its controller unless it begins with
// "-".
func owned(owners ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for i, o := range owners {
			controls := i == 0 && !strings.HasPrefix(o, "-")
			words := strings.Fields(strings.TrimPrefix(o, "-"))
			p.Metadata.OwnerReferences = append(p.Metadata.OwnerReferences,
				&metav1.OwnerReference{ApiVersion: words[0], Kind: words[1], Name: words[2], Controller: &controls})
		}
	}
}

// spec: SPREAD-4
func TestDefaultsFilter(t *testing.T) {
	zones := []string{"1 zone=A host=1:1", "2 zone=A host=2:1", "3 zone=B host=3:1", "4 zone=B host=4:0"}
	const spread = "1(uneven) 2(uneven) 3 4"
	labelled := func(label, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Metadata.Labels[label] = value }
	}
	stranger := pod(func(p *corev1.Pod) {
		owned("apps/v1 StatefulSet web")(p)
		p.Metadata.Labels = nil
	})
	ignore := "Ignore"
	ignoring := list(t, hard("zone", 1, func(c *constraint) { c.NodeAffinityPolicy = &ignore }))
	byZone, service := list(t, hard("zone", 1)), []string{"default Service app=web"}
	replica, replicas := pod(owned("apps/v1 ReplicaSet web")), []string{"default ReplicaSet/web app=web"}
	for name, x := range map[string]struct {
		plugin *Plugin
		pod    *framework.PodInfo
		groups []string
		want   string
	}{
		"of a Service":  {byZone, pod(nil), service, spread},
		"a larger skew": {list(t, hard("zone", 2)), pod(nil), service, "1 2 3 4"},
		"two constraints": {list(t, hard("zone", 1), hard("host", 1)), pod(nil), service,
			"1(uneven) 2(uneven) 3(uneven) 4"},
		"affinity is honored":           {byZone, pod(only("A")), service, "1 2 3 4"},
		"affinity is ignored":           {ignoring, pod(only("A")), service, spread},
		"of nothing":                    {byZone, pod(nil), nil, "skip"},
		"of a Service of others":        {byZone, pod(nil), []string{"default Service app=db"}, "skip"},
		"of a Service elsewhere":        {byZone, pod(nil), []string{"other Service app=web"}, "skip"},
		"of a Service that selects all": {byZone, pod(nil), []string{"default Service"}, "skip"},
		"of a Service without equality": {byZone, pod(nil), []string{"default Service app"}, spread},
		"own constraints":               {byZone, pod(nil, hard("host", 1)), service, "1(uneven) 2(uneven) 3(uneven) 4"},
		"own soft constraints":          {byZone, pod(nil, soft("host", 1)), service, "skip"},
		"only soft defaults":            {list(t, soft("zone", 1)), pod(nil), service, "skip"},
		"none listed":                   {list(t), pod(nil), service, "skip"},
		"System has soft ones":          {system(t), pod(nil), service, "skip"},
		"two Services narrow what counts": {byZone, pod(labelled("tier", "1")),
			[]string{"default Service app=web", "default Service tier=1"}, "1 2 3 4"},
		"a second Service of others": {byZone, pod(labelled("tier", "1")),
			[]string{"default Service app=web", "default Service tier=2"}, spread},
		"controller": {byZone, replica, replicas, spread},
		"controller narrows": {byZone, replica, []string{"default ReplicaSet/web app=web,tier=1",
			"default Service app=web"}, "1 2 3 4"},
		"a pod that it does not select":   {byZone, stranger, []string{"default StatefulSet/web app=web"}, "1 2 3 4"},
		"an owner that does not control":  {byZone, pod(owned("-apps/v1 ReplicaSet web")), replicas, "skip"},
		"an owner of another kind":        {byZone, pod(owned("apps/v1 StatefulSet web")), replicas, "skip"},
		"an owner of another API":         {byZone, pod(owned("example.com/v1 ReplicaSet web")), replicas, "skip"},
		"an owner of another name":        {byZone, pod(owned("apps/v1 ReplicaSet db")), replicas, "skip"},
		"an owner elsewhere":              {byZone, replica, []string{"other ReplicaSet/web app=web"}, "skip"},
		"a workload that would select it": {byZone, pod(nil), replicas, "skip"},
		"hard defaults require the labels": {list(t, hard("absent", 1)), pod(nil), service,
			"1(unlabelled) 2(unlabelled) 3(unlabelled) 4(unlabelled)"},
	} {
		if got := fitting(x.plugin, x.pod, grouped(t, cluster(t, zones...), x.groups...)); got != x.want {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}

// spec: SPREAD-3, SPREAD-4
func TestDefaultsScore(t *testing.T) {
	const service = "default Service app=web"
	for name, x := range map[string]struct {
		plugin *Plugin
		nodes  []string
		pod    *framework.PodInfo
		groups []string
		want   string
	}{
		"listed": {list(t, soft("zone", 1)), []string{"1 zone=A:3", "2 zone=B:1"}, pod(nil),
			[]string{service}, "[25 100]"},
		"listed, label missing": {list(t, soft("zone", 1)), []string{"1 zone=A:3", "2 zone=B:1", "3:0"}, pod(nil),
			[]string{service}, "[25 100 0]"},
		"only hard ones": {list(t, hard("zone", 1)), []string{"1 zone=A:3", "2 zone=B:1"}, pod(nil),
			[]string{service}, "skip"},
		"none listed":        {list(t), []string{"1 kubernetes.io/hostname=1:3"}, pod(nil), []string{service}, "skip"},
		"System, of nothing": {system(t), []string{"1 kubernetes.io/hostname=1:3"}, pod(nil), nil, "skip"},
		"System, own constraints": {system(t), []string{"1 kubernetes.io/hostname=1:3"}, pod(nil, hard("zone", 1)),
			[]string{service}, "skip"},
		// Two hosts of ln(4), two zones of ln(4), and 2 + 4 for the skews: 3*1.386+3*1.386+6 = 14.3 and 1.386+1.386+6 = 8.8:
		// 14 and 9.
		"System": {
			system(t), []string{
				"1 kubernetes.io/hostname=1 topology.kubernetes.io/zone=A:3",
				"2 kubernetes.io/hostname=2 topology.kubernetes.io/zone=B:1",
			}, pod(nil), []string{service}, "[64 100]",
		},
		// Three hosts of ln(5); A, B and the nodes without a zone, three of ln(5): 4*1.609+6 = 12.4, 2*1.609+6 = 9.2, and
		// 1.609*2+2 = 5.2.
		"System, no zone": {
			system(t), []string{
				"1 kubernetes.io/hostname=1 topology.kubernetes.io/zone=A:2",
				"2 kubernetes.io/hostname=2 topology.kubernetes.io/zone=B:1",
				"3 kubernetes.io/hostname=3:2",
			}, pod(nil), []string{service}, "[41 66 100]",
		},
		// A, B and the node without labels, three of ln(5): 2*1.609+4 = 7.2 and 1.609+4 = 5.6. That node costs nothing.
		"System, no hostname": {
			system(t), []string{"1 topology.kubernetes.io/zone=A:2", "2 topology.kubernetes.io/zone=A:0",
				"3 topology.kubernetes.io/zone=B:1", "4:5"},
			pod(nil), []string{service}, "[0 0 14 100]",
		},
		// Pods on nodes that the pod does not select count for the host, but not for the zone: 2*1.386+6 = 8.8 and 3*1.386+6
		// = 10.2.
		"System, affinity": {
			system(t), []string{
				"1 kubernetes.io/hostname=1 zone=A topology.kubernetes.io/zone=A:1",
				"2 kubernetes.io/hostname=2 topology.kubernetes.io/zone=B:3",
			}, pod(only("A")), []string{service}, "[100 90]",
		},
		// A node without a hostname still counts for its zone: 1.386+2 + 4*ln(3)+4 = 11.8, and 4*ln(3)+4 = 8.4.
		"System, affinity, no hostname": {
			system(t), []string{
				"1 kubernetes.io/hostname=1 zone=A topology.kubernetes.io/zone=A:1", "2 zone=A topology.kubernetes.io/zone=A:3",
			}, pod(only("A")), []string{service}, "[66 100]",
		},
		"System, no labels at all": {system(t), []string{"1:3", "2:1"}, pod(nil), []string{service}, "[100 100]"},
		"System, two Services": {
			system(t), []string{
				"1 kubernetes.io/hostname=1 topology.kubernetes.io/zone=A:3",
				"2 kubernetes.io/hostname=2 topology.kubernetes.io/zone=B:1",
			}, pod(func(p *corev1.Pod) { p.Metadata.Labels["tier"] = "1" }), []string{service, "default Service tier=1"},
			"[100 100]",
		},
		"an own System-like constraint needs the label": {
			system(t), []string{"1 topology.kubernetes.io/zone=A:3", "2 topology.kubernetes.io/zone=B:1", "3:0"},
			pod(nil, soft("topology.kubernetes.io/zone", 1)), []string{service}, "[25 100 0]",
		},
	} {
		if got := rated(x.plugin, x.pod, grouped(t, cluster(t, x.nodes...), x.groups...)); got != x.want {
			t.Errorf("%s: %s, want %s", name, got, x.want)
		}
	}
}

// Which pods count is not known when something changes, so that any of the namespace may help.
//
// spec: SCHED-2, SPREAD-4
func TestDefaultsHelp(t *testing.T) {
	at := func(namespace, label string, going bool) *corev1.Pod {
		p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{"app": label}}}
		if going {
			p.Metadata.DeletionTimestamp = &metav1.Time{Seconds: 1}
		}
		return p
	}
	node := func(keys ...string) *corev1.Node {
		n := &corev1.Node{Metadata: &metav1.ObjectMeta{Labels: map[string]string{}}}
		for _, k := range keys {
			n.Metadata.Labels[k] = "A"
		}
		return n
	}
	const hardZone, softZone = "hard", "soft"
	for name, x := range map[string]struct {
		kind   string
		change framework.Change
		want   bool
	}{
		"one comes": {hardZone, framework.Change{Event: framework.PodAssigned, Pod: at("default", "x", false)},
			true},
		"one comes elsewhere": {hardZone, framework.Change{Event: framework.PodAssigned, Pod: at("other", "x", false)},
			false},
		"one goes": {hardZone, framework.Change{Event: framework.PodGone, OldPod: at("default", "x", false)},
			true},
		"one goes elsewhere": {hardZone, framework.Change{Event: framework.PodGone, OldPod: at("other", "x", false)},
			false},
		"one had been going": {hardZone, framework.Change{Event: framework.PodGone, OldPod: at("default", "x", true)},
			false},
		"one is about to go": {hardZone, framework.Change{Event: framework.PodShrunk, OldPod: at("default", "x", false),
			Pod: at("default", "x", true)}, true},
		"one has other labels": {hardZone, framework.Change{Event: framework.PodShrunk, OldPod: at("default", "x", false),
			Pod: at("default", "y", false)}, true},
		"one only needs less": {hardZone, framework.Change{Event: framework.PodShrunk, OldPod: at("default", "x", false),
			Pod: at("default", "x", false)}, false},
		"a node in a zone": {hardZone, framework.Change{Event: framework.NodeAdded, Node: node("zone")}, true},
		"a node without":   {hardZone, framework.Change{Event: framework.NodeAdded, Node: node("host")}, false},
		"soft ones: one comes": {softZone, framework.Change{Event: framework.PodAssigned, Pod: at("default", "x", false)},
			false},
		"soft ones: one goes": {softZone, framework.Change{Event: framework.PodGone, OldPod: at("default", "x", false)},
			false},
		"soft ones: other labels": {softZone, framework.Change{Event: framework.PodShrunk, OldPod: at("default", "x", false),
			Pod: at("default", "y", false)}, false},
		"soft ones: a node": {softZone, framework.Change{Event: framework.NodeAdded, Node: node("zone")}, false},
	} {
		p := list(t, hard("zone", 1))
		if x.kind == softZone {
			p = list(t, soft("zone", 1))
		}
		if got := p.Helps(pod(nil), &x.change); got != x.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
