package nodeselector_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/nodeselector"
)

// requirement reads "zone In a,b" or "zone Exists".
func requirement(text string) *corev1.NodeSelectorRequirement {
	w := strings.Fields(text)
	r := &corev1.NodeSelectorRequirement{Key: w[0], Operator: w[1]}
	if len(w) > 2 {
		r.Values = strings.Split(w[2], ",")
	}
	return r
}

// term reads requirements between semicolons, those of fields with a key that begins with metadata.
func term(text string) *corev1.NodeSelectorTerm {
	t := &corev1.NodeSelectorTerm{}
	for _, part := range strings.Split(text, ";") {
		switch {
		case part == "":
		case strings.HasPrefix(part, "metadata."):
			t.MatchFields = append(t.MatchFields, requirement(part))
		default:
			t.MatchExpressions = append(t.MatchExpressions, requirement(part))
		}
	}
	return t
}

func selector(terms ...string) *corev1.NodeSelector {
	s := &corev1.NodeSelector{}
	for _, t := range terms {
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, term(t))
	}
	return s
}

func pod(labels map[string]string, s *corev1.NodeSelector) *corev1.PodSpec {
	return &corev1.PodSpec{NodeSelector: labels, Affinity: &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: s},
	}}
}

// spec: SCHED-4, LIFE-12
func TestMatches(t *testing.T) {
	node := &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a", "size": "5",
		"empty": ""}}}
	for text, want := range map[string]bool{
		"": false, "zone In a,b": true, "zone In b": false, "zone In": false, "other In a": false,
		"zone NotIn b": true, "zone NotIn a": false, "other NotIn a": true, "zone NotIn": false,
		"zone Exists": true, "empty Exists": true, "other Exists": false, "zone Exists a": false,
		"zone DoesNotExist": false, "other DoesNotExist": true, "other DoesNotExist a": false,
		"size Gt 4": true, "size Gt 5": false, "size Lt 6": true, "size Lt 5": false, "size Gt -1": true,
		"size Gt 4.5": false, "size Gt 1,2": false,
		"zone Gt 4": false, "other Lt 4": false, "zone Like a": false, "zone in a": false,
		"metadata.name In n": true, "metadata.name In m": false, "metadata.name NotIn m": true,
		"metadata.name NotIn n": false,
		"metadata.name In n,m":  false, "metadata.name Exists": false, "metadata.uid In n": false,
		"zone In a;size Gt 4;metadata.name In n": true, "zone In a;size Gt 5": false, "zone In a;metadata.name In m": false,
	} {
		for what, r := range map[string]*nodeselector.Required{
			"pod": nodeselector.OfPod(pod(nil, selector(text))), "terms": nodeselector.Of(selector("", text)),
			"volume": nodeselector.OfVolume(&corev1.PersistentVolume{Spec: &corev1.PersistentVolumeSpec{
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: selector(text)},
			}}),
		} {
			if got := r.Matches(node); got != want {
				t.Errorf("%s: %q: %v", what, text, got)
			}
		}
	}
	for _, c := range []struct {
		name string
		spec *corev1.PodSpec
		want bool
	}{
		{"no pod", nil, true},
		{"nothing", &corev1.PodSpec{}, true},
		{"a label", pod(map[string]string{"zone": "a"}, nil), true},
		{"another value", pod(map[string]string{"zone": "b"}, nil), false},
		{"a label that is not there", pod(map[string]string{"other": ""}, nil), false},
		{"one of two labels", pod(map[string]string{"zone": "a", "size": "6"}, nil), false},
		{"no terms", pod(nil, selector()), false},
		{"alternatives", pod(nil, selector("zone In b", "size Gt 4")), true},
		{"label and term", pod(map[string]string{"zone": "a"}, selector("size Gt 5")), false},
	} {
		if got := nodeselector.OfPod(c.spec).Matches(node); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if nodeselector.OfVolume(&corev1.PersistentVolume{}) != nil {
		t.Error("a volume without affinity requires something")
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		terms []string
		want  string
	}{
		{[]string{"zone In a"}, "any"}, {[]string{"metadata.name NotIn a"}, "any"},
		{[]string{"metadata.name In a", "zone In a"}, "any"},
		{[]string{"metadata.name In a", "metadata.name In b;zone In a"}, "a b"},
		{[]string{"metadata.name In a;metadata.name In b"}, ""},
	} {
		names := nodeselector.Of(selector(c.terms...)).Names()
		got := strings.Join(slices.Sorted(maps.Keys(names)), " ")
		if names == nil {
			got = "any"
		}
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.terms, got, c.want)
		}
	}
}
