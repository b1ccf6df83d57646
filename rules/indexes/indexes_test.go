package indexes_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"monoplane.dev/rules/indexes"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "0": "0", "1,3-5,7": "1,3-5,7", "1,2": "1,2", "1,2,3": "1-3", "0-1,2": "0-2", "3-4": "3,4",
	} {
		if s, err := indexes.Parse(text, 8); err != nil || s.String() != want {
			t.Errorf("%q: %v, %v, want %q", text, s, err, want)
		}
	}
	for text, want := range map[string]string{
		"x":     `cannot convert string to integer for index: "x"`,
		"-1":    `cannot convert string to integer for index: ""`,
		"1-":    `cannot convert string to integer for index: ""`,
		"8":     `too large index: "8"`,
		"1-8":   `too large index: "8"`,
		"3-3":   "non-increasing order, previous: 3, current: 3",
		"2,1":   "non-increasing order, previous: 2, current: 1",
		"1-3,3": "non-increasing order, previous: 3, current: 3",
		"1-2-3": `the fragment "1-2-3" violates the requirement that an index interval can have at most two parts ` +
			"separated by '-'",
	} {
		if s, err := indexes.Parse(text, 8); err == nil || err.Error() != want {
			t.Errorf("%q: %v, %v, want %s", text, s, err, want)
		}
	}
}

func TestReadKeepsWhatIsStillTrue(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "1,3-5,7": "1,3,4", "9-12": "", "x,2": "2", "1-x,3": "3", "4-2,4": "4", "1,1,0": "1",
	} {
		if got := indexes.Read(text, 5).String(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Sets are compared with the dumbest ones there are.
func TestSetsAgreeWithMaps(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	const completions = 24
	random := func() (indexes.Set, map[int32]bool) {
		m, list := map[int32]bool{}, []int32(nil)
		for range r.IntN(completions) {
			i := r.Int32N(completions)
			m[i], list = true, append(list, i)
		}
		return indexes.Of(list), m
	}
	for range 2000 {
		a, inA := random()
		b, inB := random()
		if s, err := indexes.Parse(a.String(), completions); err != nil || !slices.Equal(s, a) {
			t.Fatalf("%v is written as %q and read as %v, %v", a, a, s, err)
		}
		if s := indexes.Read(a.String(), completions); !slices.Equal(s, a) {
			t.Fatalf("%v is written as %q and read as %v", a, a, s)
		}
		without := a.Without(b)
		union, missing := a.Union(b), slices.Collect(a.Missing(completions))
		common, first := a.Common(b)
		n, least := int32(0), int32(0)
		for i := range int32(completions) {
			if a.Has(i) != inA[i] || union.Has(i) != (inA[i] || inB[i]) || slices.Contains(missing, i) == inA[i] {
				t.Fatalf("%v and %v: wrong about %d: union %v, missing %v", a, b, i, union, missing)
			}
			if without.Has(i) != (inA[i] && !inB[i]) {
				t.Fatalf("%v without %v is %v, which is wrong about %d", a, b, without, i)
			}
			if inA[i] && inB[i] {
				if n == 0 {
					least = i
				}
				n++
			}
		}
		if a.Len() != int32(len(inA)) || common != n || first != least || !slices.IsSorted(missing) {
			t.Fatalf("%v and %v: %d, %d in common from %d, missing %v", a, b, a.Len(), common, first, missing)
		}
	}
}
