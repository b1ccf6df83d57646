package interpodaffinity

import (
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/scheduler/framework"
)

// spec: SCHED-2
func TestHelps(t *testing.T) {
	node := func(key string) *corev1.Node {
		return &corev1.Node{Metadata: &metav1.ObjectMeta{Labels: map[string]string{key: "1"}}}
	}
	namespace := func(name, team string) *corev1.Namespace {
		return &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}}
	}
	team := func(a *corev1.Affinity) {
		near("zone", "web")(a)
		a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].NamespaceSelector =
			&metav1.LabelSelector{MatchLabels: map[string]string{"team": "1"}}
	}
	assigned := func(p *framework.PodInfo) *framework.Change {
		return &framework.Change{Event: framework.PodAssigned, Pod: p.Pod}
	}
	gone := func(p *framework.PodInfo) *framework.Change {
		return &framework.Change{Event: framework.PodGone, OldPod: p.Pod}
	}
	changed := func(from, to *framework.PodInfo) *framework.Change {
		return &framework.Change{Event: framework.PodShrunk, OldPod: from.Pod, Pod: to.Pod}
	}
	for name, c := range map[string]struct {
		pod    *framework.PodInfo
		change *framework.Change
		helps  bool
	}{
		"what it is near to comes": {pod("db", near("zone", "web")), assigned(pod("web")), true},
		"another comes":            {pod("db", near("zone", "web")), assigned(pod("x")), false},
		"half of what it is near to comes": {pod("db", near("zone", "web"), near("zone", "x")), assigned(pod("web")),
			false},
		"what it is apart from comes": {pod("db", apart("zone", "web")), assigned(pod("web")), false},
		"what it is apart from goes": {pod("db", apart("zone", "x"), apart("zone", "web")), gone(pod("web")),
			true},
		"another goes":                       {pod("db", apart("zone", "web")), gone(pod("x")), false},
		"who keeps it away goes":             {pod("db"), gone(pod("web", apart("zone", "db"))), true},
		"who keeps others away goes":         {pod("db"), gone(pod("web", apart("zone", "x"))), false},
		"the last of its kind goes":          {pod("web", near("zone", "web")), gone(pod("web")), true},
		"what it is near to goes":            {pod("db", near("zone", "web")), gone(pod("web")), false},
		"becomes what it is near to":         {pod("db", near("zone", "web")), changed(pod("x"), pod("web")), true},
		"stays what it is near to":           {pod("db", near("zone", "web")), changed(pod("web"), pod("web")), false},
		"is no longer what it is apart from": {pod("db", apart("zone", "web")), changed(pod("web"), pod("x")), true},
		"stays what it is apart from":        {pod("db", apart("zone", "web")), changed(pod("web"), pod("web")), false},
		"becomes what it is apart from":      {pod("db", apart("zone", "web")), changed(pod("x"), pod("web")), false},
		"a node with the label": {pod("db", near("zone", "web")),
			&framework.Change{Event: framework.NodeAdded, Node: node("zone")}, true},
		"a node without the label": {pod("db", near("zone", "web")),
			&framework.Change{Event: framework.NodeAdded, Node: node("x")}, false},
		"a node that is apart from everything": {pod("db", apart("zone", "web")),
			&framework.Change{Event: framework.NodeAdded, Node: node("x")}, true},
		"a node for who is kept away": {pod("db"), &framework.Change{Event: framework.NodeAdded, Node: node("x")},
			true},
		"other labels of a node": {pod("db"), &framework.Change{Event: framework.NodeLabels,
			OldNode: node("x"), Node: node("y")}, true},
		"a node goes": {pod("db"), &framework.Change{Event: framework.NodeGone,
			OldNode: node("x")}, true},
		"a namespace gets the label": {pod("db", team), &framework.Change{Event: framework.NamespaceLabels,
			OldNamespace: namespace("b", "2"), Namespace: namespace("b", "1")}, true},
		"a namespace with the label comes": {pod("db", team), &framework.Change{Event: framework.NamespaceLabels,
			Namespace: namespace("b", "1")}, true},
		"a namespace with the label goes": {pod("db", team), &framework.Change{Event: framework.NamespaceLabels,
			OldNamespace: namespace("b", "1")}, true},
		"a namespace gets another label": {pod("db", team), &framework.Change{Event: framework.NamespaceLabels,
			OldNamespace: namespace("b", "2"), Namespace: namespace("b", "3")}, false},
		"its namespace gets another label": {pod("db"), &framework.Change{Event: framework.NamespaceLabels,
			Namespace: namespace("default", "3")}, true},
		"a namespace that no term chooses comes": {pod("db", near("zone", "web")),
			&framework.Change{Event: framework.NamespaceLabels, Namespace: namespace("b", "1")}, false},
		"taints": {pod("db"), &framework.Change{Event: framework.NodeTaints,
			OldNode: node("x"), Node: node("x")}, false},
	} {
		p := newPlugin(t, Args{})
		if got := p.Helps(c.pod, c.change); got != c.helps {
			t.Errorf("%s: %v", name, got)
		}
		if c.helps && p.Events()&c.change.Event == 0 {
			t.Errorf("%s: the plugin does not ask for such changes", name)
		}
	}
}
