package framework

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// The groups of a pod in any order make the same query, which is also that of a constraint of the pod's own that asks
// for the same, so that all count once.
//
// spec: SPREAD-4
func TestGroupQuery(t *testing.T) {
	group := func(selector string) *Group {
		s, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		return &Group{Selector: s}
	}
	for name, x := range map[string]struct {
		groups []*Group
		want   string
	}{
		"one":                   {[]*Group{group("a=1")}, "ns/(a=1)"},
		"several":               {[]*Group{group("b=1"), group("a in (1,2),a!=2")}, "ns/(a in (1,2),a!=2,b=1)"},
		"in the other order":    {[]*Group{group("a!=2,a in (1,2)"), group("b=1")}, "ns/(a in (1,2),a!=2,b=1)"},
		"the same twice":        {[]*Group{group("a=1"), group("a=1,b=1"), group("a=1")}, "ns/(a=1,b=1)"},
		"one requires nothing":  {[]*Group{group(""), group("a=1")}, "ns/(a=1)"},
		"none requires a thing": {[]*Group{group(""), {Selector: labels.Nothing()}}, ""},
		"contradicting":         {[]*Group{group("a=1"), group("a=2")}, "ns/(a=1,a=2)"},
	} {
		q := NewGroupQuery("ns", x.groups)
		if q == nil {
			q = &PodQuery{}
		}
		if q.text != x.want {
			t.Errorf("%s: %q, want %q", name, q.text, x.want)
		}
	}
	own := NewPodQuery("ns", &metav1.LabelSelector{MatchLabels: map[string]string{"a": "1"}}, nil)
	if q := NewGroupQuery("ns", []*Group{group("a=1")}); q.text != own.text {
		t.Errorf("%s and %s are counted apart", q.text, own.text)
	}
}

// Looking for the groups of a pod that belongs to none takes no memory.
func TestNoGroupsNoAllocation(t *testing.T) {
	s := NewSnapshot()
	p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{"app": "web",
		"version": "1"}}}
	for range 2 {
		if n := testing.AllocsPerRun(20, func() {
			if len(s.Groups(p)) > 0 {
				t.Error("it belongs to something")
			}
		}); n > 0 {
			t.Errorf("%v allocations", n)
		}
		s.SetGroups([]*Group{
			{Namespace: "ns", Service: true, Selector: labels.SelectorFromSet(labels.Set{"app": "db"})},
			{Namespace: "ns", Service: true, Selector: labels.SelectorFromSet(labels.Set{"app": "web", "version": "2"})},
			{Namespace: "ns", APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", Selector: labels.Everything()},
		})
	}
}
