package patch_test

import (
	"encoding/json"
	"strings"
	"testing"

	kubecore "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"pgregory.net/rapid"

	"monoplane.dev/apiserver/patch"
)

// TestAgainstKubernetes compares strategic merge patches with the implementation of Kubernetes, on random
// pods and random patches with all directives. Patches that Kubernetes refuses must be refused.
//
// spec: OBJ-9
func TestAgainstKubernetes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		doc := marshal(rt, map[string]any{"metadata": genMeta(rt, false), "spec": genSpec(rt, false)})
		change := marshal(rt, map[string]any{"metadata": genMeta(rt, true), "spec": genSpec(rt, true)})
		want, wantErr := strategicpatch.StrategicMergePatch(doc, change, kubecore.Pod{})
		if wantErr != nil && strings.Contains(wantErr.Error(), "no elements in any of the given slices") {
			return // an order for a list that is empty: harmless, and accepted here
		}

		p, err := patch.Parse(patch.Strategic, change)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := p.Apply(doc, podSchema())
		if (err == nil) != (wantErr == nil) {
			rt.Fatalf("doc %s\npatch %s\ngot %v\nwant %v", doc, change, err, wantErr)
		}
		if err != nil {
			return
		}
		if want = normal(rt, want); !equalJSON(t, string(normal(rt, got)), string(want)) {
			rt.Fatalf("doc   %s\npatch %s\ngot   %s\nwant  %s", doc, change, got, want)
		}
	})
}

// A list may have a name twice, as kubectl debug sends it for a container that is there already: what the patch says
// of the two is one after the other merged into the one, which is then refused as a change. spec: OBJ-9, INIT-6
func TestNamesTwiceAgainstKubernetes(t *testing.T) {
	doc := []byte(`{"spec":{"containers":[{"name":"a","image":"x"},{"name":"b"}]}}`)
	for order, refused := range map[string]bool{
		`[{"name":"a"},{"name":"a"},{"name":"b"}]`: false,
		`[{"name":"b"},{"name":"a"},{"name":"a"}]`: false,
		`[{"name":"a"},{"name":"b"}]`:              true, // names it once
	} {
		change := []byte(`{"spec":{"$setElementOrder/containers":` + order +
			`,"containers":[{"name":"a","image":null},{"name":"a","image":"y"}]}}`)
		want, wantErr := strategicpatch.StrategicMergePatch(doc, change, kubecore.Pod{})
		p, err := patch.Parse(patch.Strategic, change)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Apply(doc, podSchema())
		if (err != nil) != refused || (wantErr != nil) != refused {
			t.Errorf("%s: %v, Kubernetes %v", order, err, wantErr)
		} else if !refused && !equalJSON(t, string(got), string(want)) {
			t.Errorf("%s: %s, Kubernetes %s", order, got, want)
		}
	}
}

// normal removes what decoding would drop anyway: nulls, and directives that Kubernetes leaves behind in
// elements that a patch adds (this package removes them).
func normal(t *rapid.T, doc []byte) []byte {
	var tree any
	if err := json.Unmarshal(doc, &tree); err != nil {
		t.Fatal(err)
	}
	tree, _ = clean(tree)
	return marshal(t, tree)
}

func clean(v any) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		if d := v["$patch"]; d == "delete" || (d == "replace" && len(v) == 1) {
			return nil, false
		}
		for name, f := range v {
			f, ok := clean(f)
			if !ok || f == nil || strings.HasPrefix(name, "$") {
				delete(v, name)
				continue
			}
			v[name] = f
		}
		return v, true
	case []any:
		out := []any{}
		for _, e := range v {
			if e, ok := clean(e); ok {
				out = append(out, e)
			}
		}
		return out, true
	default:
		return v, true
	}
}

func marshal(t *rapid.T, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var letters = []string{"a", "b", "c", "d"}

func genMap(t *rapid.T, label string, isPatch bool) map[string]any {
	m := map[string]any{}
	for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom(letters), 0, 3, rapid.ID).Draw(t, label) {
		m[k] = rapid.SampledFrom(letters).Draw(t, label+k)
		if isPatch && rapid.IntRange(0, 3).Draw(t, label+"null") == 0 {
			m[k] = nil
		}
	}
	if isPatch {
		switch rapid.IntRange(0, 12).Draw(t, label+"directive") {
		case 0:
			m["$patch"] = "replace"
		case 1:
			m["$patch"] = "delete"
		}
	}
	return m
}

func genMeta(t *rapid.T, isPatch bool) map[string]any {
	m := map[string]any{"labels": genMap(t, "labels", isPatch)}
	names := rapid.SliceOfNDistinct(rapid.SampledFrom(letters), 0, 4, rapid.ID).Draw(t, "finalizers")
	m["finalizers"] = names
	if !isPatch {
		return m
	}
	switch rapid.IntRange(0, 3).Draw(t, "finalizerPatch") {
	case 0:
		delete(m, "finalizers")
		m["$deleteFromPrimitiveList/finalizers"] = names
	case 1:
		m["$setElementOrder/finalizers"] = rapid.Permutation(letters).Draw(t, "order")
		sortBy(names, m["$setElementOrder/finalizers"].([]string))
	case 2:
		delete(m, "finalizers")
	}
	return m
}

// sortBy brings names into the order of order, as $setElementOrder requires of a patch.
func sortBy(names, order []string) {
	n := 0
	for _, o := range order {
		for i := n; i < len(names); i++ {
			if names[i] == o {
				names[n], names[i] = names[i], names[n]
				n++
			}
		}
	}
}

func genSpec(t *rapid.T, isPatch bool) map[string]any {
	s := map[string]any{
		"nodeSelector": genMap(t, "nodeSelector", isPatch),
		"hostNetwork":  rapid.Bool().Draw(t, "hostNetwork"),
		"tolerations":  []any{map[string]any{"key": rapid.SampledFrom(letters).Draw(t, "toleration")}},
	}
	genList(t, s, "containers", "name", isPatch, genContainer)
	genList(t, s, "volumes", "name", isPatch, genVolume)
	if isPatch && rapid.IntRange(0, 3).Draw(t, "dropSpec") == 0 {
		delete(s, "containers")
		s["tolerations"] = nil
	}
	return s
}

// genList draws a list of objects with distinct merge keys, in a patch with directives.
func genList(
	t *rapid.T, into map[string]any, name, key string, isPatch bool, element func(*rapid.T, bool) map[string]any,
) {
	keys := rapid.SliceOfNDistinct(rapid.SampledFrom(letters), 0, 4, rapid.ID).Draw(t, name)
	ordered := isPatch && rapid.Bool().Draw(t, name+"Ordered")
	if ordered {
		order := rapid.Permutation(letters).Draw(t, name+"Order")
		var list []any
		for _, k := range order {
			list = append(list, map[string]any{key: k})
		}
		into["$setElementOrder/"+name] = list
		sortBy(keys, order)
	}
	list := []any{}
	for _, k := range keys {
		e := element(t, isPatch)
		e[key] = k
		if isPatch && rapid.IntRange(0, 4).Draw(t, name+"Delete") == 0 {
			e = map[string]any{key: k, "$patch": "delete"}
		}
		list = append(list, e)
	}
	if isPatch && !ordered && rapid.IntRange(0, 8).Draw(t, name+"Replace") == 0 {
		list = append(list, map[string]any{"$patch": "replace"})
	}
	into[name] = list
}

func genContainer(t *rapid.T, isPatch bool) map[string]any {
	c := map[string]any{"image": rapid.SampledFrom(letters).Draw(t, "image")}
	genList(t, c, "env", "name", isPatch, func(t *rapid.T, _ bool) map[string]any {
		return map[string]any{"value": rapid.SampledFrom(letters).Draw(t, "value")}
	})
	ports := []any{}
	for _, p := range rapid.SliceOfNDistinct(rapid.IntRange(80, 83), 0, 3, rapid.ID).Draw(t, "ports") {
		ports = append(ports, map[string]any{"containerPort": p,
			"protocol": rapid.SampledFrom([]string{"TCP", "UDP"}).Draw(t, "protocol")})
	}
	c["ports"] = ports
	if isPatch && rapid.Bool().Draw(t, "nullImage") {
		c["image"] = nil
	}
	return c
}

func genVolume(t *rapid.T, isPatch bool) map[string]any {
	v := map[string]any{}
	source := rapid.SampledFrom([]string{"emptyDir", "hostPath", "configMap"}).Draw(t, "source")
	v[source] = map[string]any{rapid.SampledFrom([]string{"path", "medium", "name"}).Draw(t, "sourceField"): "x"}
	if isPatch && rapid.Bool().Draw(t, "retain") {
		v["$retainKeys"] = []any{"name", source}
	}
	return v
}
