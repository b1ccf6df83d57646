package fieldmanager

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// elements are steps of paths, in the order of fieldsV1.
var elements = []string{
	"f:", "f:a", "f:a.b/c", "f:b", `k:{"containerPort":80,"protocol":"TCP"}`, `k:{"containerPort":80,"protocol":"UDP"}`,
	`k:{"containerPort":443,"protocol":"TCP"}`, `k:{"containerPort":8080,"protocol":"TCP"}`, `k:{"name":"a"}`,
	`k:{"name":"a b"}`, `k:{"name":"a\"b"}`, `v:1`, `v:2`, `v:10`, `v:"x"`,
}

func randomSet(r *rand.Rand, depth int) (s set) {
	for _, e := range elements {
		if r.IntN(len(elements)) > 3 {
			continue
		}
		n := node{element: e, member: r.IntN(2) == 0}
		if depth > 0 {
			n.below = randomSet(r, depth-1)
		}
		if n.member || len(n.below) > 0 {
			s = append(s, n)
		}
	}
	return s
}

func upstream(t *testing.T, s set) *fieldpath.Set {
	t.Helper()
	out := &fieldpath.Set{}
	if err := out.FromJSON(bytes.NewReader(s.appendJSON(nil))); err != nil {
		t.Fatal(err)
	}
	return out
}

// What is done with sets is what structured-merge-diff does, and they are written and read as there.
//
// spec: OBJ-17
func TestSets(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		a, b := randomSet(r, 2), randomSet(r, 2)
		x, y := upstream(t, a), upstream(t, b)
		text, err := x.ToJSON()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(a.appendJSON(nil)); got != string(text) {
			t.Fatalf("written:\n%s\nwant\n%s", got, text)
		}
		read, err := parseSet([]byte(strings.ReplaceAll(string(text), `":{`, "\" : {\n")))
		if err != nil || string(read.appendJSON(nil)) != string(text) {
			t.Fatalf("read %s: %s, %v", text, read.appendJSON(nil), err)
		}
		less, changed := without(a, b)
		if want := x.Difference(y); !upstream(t, less).Equals(want) || changed == want.Equals(x) {
			t.Fatalf("%s without %s is %s (changed: %v), want %s", x, y, less.appendJSON(nil), changed, want)
		}
		if want := x.Union(y); !upstream(t, union(a, b)).Equals(want) {
			t.Fatalf("%s and %s is %s, want %s", x, y, union(a, b).appendJSON(nil), want)
		}
		if got := contains(a, b); got != y.Difference(x).Empty() {
			t.Fatalf("%s contains %s: %v", x, y, got)
		}
	}
}

// spec: OBJ-17
func TestFieldsThatCannotBeRead(t *testing.T) {
	deep := strings.Repeat(`{"f:a":`, maxDepth+2) + "{}" + strings.Repeat("}", maxDepth+2)
	for _, text := range []string{"", "{", "[]", `{"f:a"}`, `{"f:a":1}`, `{"f:a":{},}`, `{"f:a":{}} x`, `{"f:a`, `{"f:a\`,
		`{"f:a":{},"f:a":{}}`, `{f:a:{}}`, deep} {
		if s, err := parseSet([]byte(text)); err == nil {
			t.Errorf("%.40q was read as %s", text, s.appendJSON(nil))
		}
	}
}
