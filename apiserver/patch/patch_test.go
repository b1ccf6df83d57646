package patch_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/patch"
)

func podSchema() *patch.Schema { return patch.NewSchema((&corev1.Pod{}).ProtoReflect().Descriptor()) }

func apply(t *testing.T, typ patch.Type, doc, change string) (string, error) {
	t.Helper()
	p, err := patch.Parse(typ, []byte(change))
	if err != nil {
		return "", err
	}
	out, err := p.Apply([]byte(doc), podSchema())
	return string(out), err
}

func equalJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var trees [2]any
	for i, text := range []string{a, b} {
		if err := json.Unmarshal([]byte(text), &trees[i]); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
	return reflect.DeepEqual(trees[0], trees[1])
}

// spec: OBJ-9
func TestApply(t *testing.T) {
	for _, c := range []struct {
		name, typ, doc, patch, want string
	}{
		{"json patch", "json", `{"a":[1,2]}`,
			`[{"op":"add","path":"/a/-","value":3},{"op":"test","path":"/a/0","value":1},{"op":"remove","path":"/a/1"}]`,
			`{"a":[1,3]}`},
		{"json patch copies", "json", `{"a":1}`,
			`[{"op":"copy","from":"/a","path":"/b"},{"op":"move","from":"/a","path":"/c"}]`, `{"b":1,"c":1}`},
		{"merge patch", "merge", `{"a":{"b":1,"c":2},"d":[1]}`, `{"a":{"b":null,"e":{"f":null}},"d":[2]}`,
			`{"a":{"c":2,"e":{}},"d":[2]}`},
		{"labels merge", "strategic", `{"metadata":{"labels":{"a":"1","b":"2"}}}`,
			`{"metadata":{"labels":{"a":null,"c":"3"}}}`, `{"metadata":{"labels":{"b":"2","c":"3"}}}`},
		{"containers merge by name", "strategic",
			`{"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","image":"y"}]}}`,
			`{"spec":{"containers":[{"name":"b","image":"z"}]}}`,
			`{"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","image":"z"}]}}`},
		{"an element is deleted", "strategic",
			`{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`, `{"spec":{"containers":[{"name":"a","$patch":"delete"}]}}`,
			`{"spec":{"containers":[{"name":"b"}]}}`},
		{"a list is replaced", "strategic",
			`{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`,
			`{"spec":{"containers":[{"name":"c"},{"$patch":"replace"}]}}`,
			`{"spec":{"containers":[{"name":"c"}]}}`},
		{"an object is replaced", "strategic",
			`{"spec":{"nodeSelector":{"a":"1"}}}`, `{"spec":{"nodeSelector":{"$patch":"replace","b":"2"}}}`,
			`{"spec":{"nodeSelector":{"b":"2"}}}`},
		{"an object is emptied", "strategic",
			`{"spec":{"nodeSelector":{"a":"1"}}}`, `{"spec":{"nodeSelector":{"$patch":"delete"}}}`,
			`{"spec":{"nodeSelector":{}}}`},
		{"lists without a strategy are replaced", "strategic",
			`{"spec":{"tolerations":[{"key":"a"}]}}`, `{"spec":{"tolerations":[{"key":"b"}]}}`,
			`{"spec":{"tolerations":[{"key":"b"}]}}`},
		{"finalizers are a set", "strategic",
			`{"metadata":{"finalizers":["a","b"]}}`, `{"metadata":{"finalizers":["b","c"]}}`,
			`{"metadata":{"finalizers":["a","b","c"]}}`},
		{"deletion from a set", "strategic",
			`{"metadata":{"finalizers":["a","b"]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"]}}`,
			`{"metadata":{"finalizers":["b"]}}`},
		{"element order", "strategic",
			`{"spec":{"containers":[{"name":"a"},{"name":"server"},{"name":"b"}]}}`,
			`{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"c"},{"name":"a"}],"containers":[{"name":"c",` +
				`"image":"x"}]}}`,
			`{"spec":{"containers":[{"name":"server"},{"name":"b"},{"name":"c","image":"x"},{"name":"a"}]}}`},
		{"retained keys", "strategic",
			`{"spec":{"volumes":[{"name":"v","emptyDir":{}}]}}`,
			`{"spec":{"volumes":[{"name":"v","$retainKeys":["name","hostPath"],"hostPath":{"path":"/x"}}]}}`,
			`{"spec":{"volumes":[{"name":"v","hostPath":{"path":"/x"}}]}}`},
		{"ports merge by number however it is written", "strategic",
			`{"spec":{"containers":[{"name":"a","ports":[{"containerPort":80,"protocol":"TCP"}]}]}}`,
			`{"spec":{"containers":[{"name":"a","ports":[{"containerPort":80,"name":"web"}]}]}}`,
			`{"spec":{"containers":[{"name":"a","ports":[{"containerPort":80,"protocol":"TCP","name":"web"}]}]}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			typ := map[string]patch.Type{"json": patch.JSON, "merge": patch.Merge, "strategic": patch.Strategic}[c.typ]
			got, err := apply(t, typ, c.doc, c.patch)
			if err != nil {
				t.Fatal(err)
			}
			if !equalJSON(t, got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300)
	bomb := `[{"op":"add","path":"/a","value":{"x":"` + strings.Repeat("x", 1000) + `"}}`
	for i := range 30 {
		bomb += fmt.Sprintf(`,{"op":"copy","from":"/a","path":"/a/b%d"}`, i)
	}
	for _, c := range []struct {
		name  string
		typ   patch.Type
		patch string
		want  apierrors.Reason
	}{
		{"apply, which goes by owners", patch.Apply, `{}`, apierrors.UnsupportedMediaType},
		{"no type", "", `{}`, apierrors.UnsupportedMediaType},
		{"not JSON", patch.Merge, `{`, apierrors.BadRequest},
		{"trailing data", patch.Merge, `{} {}`, apierrors.BadRequest},
		{"no object", patch.Strategic, `[]`, apierrors.BadRequest},
		{"no array", patch.JSON, `{}`, apierrors.BadRequest},
		{"deep", patch.Merge, deep, apierrors.BadRequest},
		{"large", patch.Merge, `{"a":"` + strings.Repeat("x", patch.MaxBytes) + `"}`, apierrors.RequestEntityTooLarge},
		{"unknown operation", patch.JSON, `[{"op":"burn","path":"/a"}]`, apierrors.BadRequest},
		{"no path", patch.JSON, `[{"op":"remove"}]`, apierrors.BadRequest},
		{"no value", patch.JSON, `[{"op":"add","path":"/a"}]`, apierrors.BadRequest},
		{"test fails", patch.JSON, `[{"op":"test","path":"/kind","value":"Cow"}]`, apierrors.Invalid},
		{"nothing to remove", patch.JSON, `[{"op":"remove","path":"/x/y"}]`, apierrors.Invalid},
		{"copy bomb", patch.JSON, bomb + `]`, apierrors.RequestEntityTooLarge},
		{"unknown directive", patch.Strategic, `{"metadata":{"$patch":"burn"}}`, apierrors.BadRequest},
		{"no merge key", patch.Strategic, `{"spec":{"containers":[{"image":"x"}]}}`, apierrors.BadRequest},
		{"mixed list", patch.Strategic, `{"spec":{"containers":[{"name":"x"},1]}}`, apierrors.BadRequest},
		{"order and list disagree", patch.Strategic,
			`{"spec":{"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"x"}]}}`, apierrors.BadRequest},
		{"retain keys too few", patch.Strategic, `{"metadata":{"$retainKeys":["a"],"b":1}}`, apierrors.BadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := apply(t, c.typ, `{"kind":"Pod","metadata":{},"spec":{"containers":[{"name":"a"}]}}`, c.patch)
			if !apierrors.Is(err, c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestCarriesAndDuplicates(t *testing.T) {
	for _, c := range []struct {
		typ   patch.Type
		patch string
		want  bool
	}{
		{patch.Merge, `{"metadata":{"uid":"u1"}}`, true},
		{patch.Strategic, `{"metadata":{"uid":"u2"}}`, false},
		{patch.Merge, `{"metadata":null}`, false},
		{patch.JSON, `[{"op":"test","path":"/metadata/uid","value":"u1"}]`, true},
		{patch.JSON, `[{"op":"add","path":"/metadata/uid","value":"u1"}]`, false},
	} {
		p, err := patch.Parse(c.typ, []byte(c.patch))
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Carries("u1", "metadata", "uid"); got != c.want {
			t.Errorf("%s: %v, want %v", c.patch, got, c.want)
		}
	}
	p, err := patch.Parse(patch.Merge, []byte(`{"spec":{"containers":[{"name":"a","name":"b"}]},"spec":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Duplicates(), []string{"spec.containers[0].name", "spec"}; !reflect.DeepEqual(got, want) {
		t.Errorf("duplicates %v, want %v", got, want)
	}
}

// A patch may be applied again after a lost race: applying must not use it up.
func TestApplyTwice(t *testing.T) {
	p, err := patch.Parse(patch.Strategic, []byte(
		`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"]},"spec":{"$setElementOrder/containers":[{"name":"b"},`+
			`{"name":"a"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	doc := []byte(`{"metadata":{"finalizers":["a","b"]},"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`)
	first, err := p.Apply(doc, podSchema())
	if err != nil {
		t.Fatal(err)
	}
	second, err := p.Apply(doc, podSchema())
	if err != nil || !equalJSON(t, string(first), string(second)) {
		t.Fatalf("%s, then %s (%v)", first, second, err)
	}
}

func FuzzPatch(f *testing.F) {
	doc := `{"metadata":{"labels":{"a":"1"},"finalizers":["a"]},"spec":{"containers":[{"name":"a",` +
		`"ports":[{"containerPort":80}]}],"volumes":[null]}}`
	f.Add("json", `[{"op":"add","path":"/spec/containers/-","value":{"name":"b"}}]`)
	f.Add("json", `[{"op":"test","path":"/spec/volumes/0","value":null},{"op":"replace","path":"","value":null}]`)
	f.Add("merge", `{"spec":{"containers":null}}`)
	f.Add("strategic",
		`{"spec":{"$setElementOrder/containers":[{"name":"b"}],"containers":[{"name":"b","$patch":"delete"}]}}`)
	f.Add("strategic",
		`{"metadata":{"$retainKeys":["labels"],"labels":{"$patch":"replace"}},"$deleteFromPrimitiveList/x":[1]}`)
	f.Fuzz(func(t *testing.T, typ, change string) {
		p, err := patch.Parse(patch.Type("application/"+typ+"-patch+json"), []byte(change))
		if typ == "strategic" {
			p, err = patch.Parse(patch.Strategic, []byte(change))
		}
		if err != nil {
			return
		}
		out, err := p.Apply([]byte(doc), podSchema())
		if err == nil && !json.Valid(out) {
			t.Fatalf("result is not JSON: %s", out)
		}
		if err != nil && apierrors.Is(err, apierrors.InternalError) {
			t.Fatalf("input caused an internal error: %v", err)
		}
	})
}
