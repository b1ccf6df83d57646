package oracle

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monoplane.dev/nodeagent/summary"
)

// fill gives random values to all that a summary says, and leaves some of it out.
func fill(r *rand.Rand, v reflect.Value) {
	if v.Type() == reflect.TypeFor[summary.Time]() {
		if r.IntN(8) > 0 {
			v.Set(reflect.ValueOf(summary.Time{Time: time.Unix(r.Int64N(2_000_000_000), 0)}))
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if r.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(3), 3))
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") != "-" { // else it is not said in a summary
				fill(r, v.Field(i))
			}
		}
	case reflect.String:
		v.SetString(pick(r, []string{"", "a", "b", "c-1"}))
	case reflect.Int64:
		v.SetInt(r.Int64N(1 << 40))
	case reflect.Uint64:
		v.SetUint(r.Uint64N(1 << 40))
	}
}

// What an agent says of its node is read by Kubernetes' clients as it was meant, and written by Kubernetes byte for
// byte alike.
func TestSummariesHaveTheSameForm(t *testing.T) {
	r := random(t)
	for range *count {
		ours := &summary.Summary{}
		fill(r, reflect.ValueOf(ours).Elem())
		text, err := json.Marshal(ours)
		if err != nil {
			t.Fatal(err)
		}
		var theirs statsapi.Summary
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&theirs); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		again, err := json.Marshal(theirs)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(again), string(text)); diff != "" {
			t.Fatalf("-Kubernetes +Monoplane\n%s", diff)
		}
	}
}

// leaves returns the JSON paths of a type.
func leaves(typ reflect.Type, at string, out map[string]bool) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || strings.HasSuffix(typ.Name(), "Time") {
		out[at] = true
		return
	}
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if f.Anonymous {
			leaves(f.Type, at, out)
			continue
		}
		leaves(f.Type, at+"."+name, out)
	}
}

// What kubelets say and agents do not is here, by its name.
func TestSummariesLackOnlyWhatIsKnown(t *testing.T) {
	theirs, ours := map[string]bool{}, map[string]bool{}
	leaves(reflect.TypeFor[statsapi.Summary](), "", theirs)
	leaves(reflect.TypeFor[summary.Summary](), "", ours)
	// Pressure needs kernels that count it and a runtime that asks them; the rest are features that kubelets gave up, or
	// groups of processes that an agent within the server's process does not have.
	missing := []string{".psi.", ".accelerators.", ".userDefinedMetrics.", ".systemContainers.", ".io.time",
		".volumeHealthStats."}
	for path := range theirs {
		if !ours[path] && !slices.ContainsFunc(missing, func(m string) bool { return strings.Contains(path+".", m) }) {
			t.Errorf("%s is missing", path)
		}
	}
	for path := range ours {
		if !theirs[path] {
			t.Errorf("Kubernetes has no %s", path)
		}
	}
}

// The metrics of /metrics/resource are those of kubelets, but for one that was renamed.
func TestMetricsOfResourcesAreTheSame(t *testing.T) {
	r := random(t)
	for range min(*count, 200) {
		ours := &summary.Summary{}
		fill(r, reflect.ValueOf(ours).Elem())
		for i := range ours.Pods {
			p := &ours.Pods[i]
			p.Ref.Name = string(rune('p' + i))
			for j := range p.Containers {
				p.Containers[j].Name = string(rune('a' + j))
			}
		}
		text, err := json.Marshal(ours)
		if err != nil {
			t.Fatal(err)
		}
		var theirs statsapi.Summary
		if err := json.Unmarshal(text, &theirs); err != nil {
			t.Fatal(err)
		}
		want := ask[string](t, "metrics-of-resources", &theirs)
		got, err := ours.Metrics()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Fatalf("-Kubernetes +Monoplane\n%s", diff)
		}
	}
}
