package codec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"

	"monoplane.dev/codec"
)

// compareDecoding checks that we take text as Kubernetes does: the same documents are refused, the same unknown
// and duplicate fields are reported in the same words, and the same values are read.
func compareDecoding(t *testing.T, p pair, text []byte) {
	t.Helper()
	k8s, ours := p.k8s(), p.ours()
	wantStrict, wantErr := kjson.UnmarshalStrict(text, k8s)
	strict, err := codec.DecodeObject(text, ours)
	if differs(text, err) || wantErr != nil && strings.Contains(wantErr.Error(), `invalid duration ""`) {
		return // a null duration, or an empty one, is none here; only the server's own metrics have durations
	}
	if (err != nil) != (wantErr != nil) {
		t.Fatalf("Kubernetes: %v\nMonoplane: %v\nfor %s", wantErr, err, text)
	}
	if err != nil {
		return
	}
	var want []string
	for _, e := range wantStrict {
		want = append(want, e.Error())
	}
	if !slices.Equal(want, strict) {
		t.Fatalf("Kubernetes: %q\nMonoplane: %q\nfor %s", want, strict, text)
	}
	if strings.Contains(strings.Join(strict, ""), "duplicate") {
		return // Kubernetes mixes the elements of lists given twice
	}
	p.setTypeMeta(k8s)
	wantText, wantErr := json.Marshal(k8s)
	if wantErr != nil {
		return // raw JSON that Kubernetes took in and cannot write
	}
	got := codec.AppendObject(nil, ours)
	if diff := cmp.Diff(withoutNulls(t, wantText), withoutNulls(t, got)); diff != "" {
		t.Fatalf("Kubernetes (-), Monoplane (+):\n%s\nfor %s", diff, text)
	}
	again := p.ours()
	if strict, err := codec.DecodeObject(got, again); err != nil || len(strict) > 0 {
		t.Fatalf("own JSON is refused: %v %v in %s", err, strict, got)
	}
	if b := codec.AppendObject(nil, again); !bytes.Equal(got, b) {
		t.Fatalf("changed on the way through JSON:\n%s\n%s", got, b)
	}
}

// differs says whether Monoplane means to treat the document in another way than Kubernetes does: it is
// stricter about null for the whole, about years that RFC 3339 cannot write and about bytes given as a list of
// numbers, nests less deep, and looks at the kind.
func differs(text []byte, err error) bool {
	if string(bytes.TrimSpace(text)) == "null" {
		return true
	}
	if err == nil {
		return false
	}
	var kind *codec.KindError
	if errors.As(err, &kind) {
		return true
	}
	for _, reason := range []string{"nested deeper", "within the years", "base64, found an array"} {
		if strings.Contains(err.Error(), reason) {
			return true
		}
	}
	return false
}

// withoutNulls is sorted, leaving out null and empty lists: those that Kubernetes writes for pointers to the
// zero time, and lists that are [] in one and null in the other.
func withoutNulls(t *testing.T, text []byte) string {
	t.Helper()
	lines := strings.Split(strings.ReplaceAll(sorted(t, text), "[\n]", "null"), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return strings.HasSuffix(line, ": null,") }),
		"\n")
}

// spec: OBJ-3
func TestBadDocumentsAreTakenAsByKubernetes(t *testing.T) {
	eachRandom(t, func(t *testing.T, p pair, rng *rand.Rand, o protobufObject) {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			compareDecoding(t, p, mutate(rng, text))
		}
	})
}
