package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEachLinterFinds has the linters look at a package with a fault for each of them: they find it, on the line that
// says so, and nothing else.
func TestEachLinterFinds(t *testing.T) {
	t.Chdir("testdata")
	says := regexp.MustCompile(`// (find|below:) ([a-z ]+)$`)
	var want, got []string
	finds := make(map[string]bool)
	for _, name := range []string{"scheduler/bad.go", "scheduler/bad_test.go"} {
		text, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			if m := says.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				at := n
				if m[1] == "below:" {
					at++
				}
				for linter := range strings.FieldsSeq(m[2]) {
					want = append(want, fmt.Sprintf("%s:%d %s", name, at, linter))
					finds[linter] = true
				}
			}
		}
	}
	for linter := range linters {
		if !finds[linter] {
			t.Errorf("there is no fault for %s", linter)
		}
	}
	found, err := run("", []string{"./..."})
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`^([^:]+):(\d+):\d+: .* \((\w+)\)$`)
	for _, f := range found {
		m := line.FindStringSubmatch(f)
		if m == nil {
			t.Fatalf("%q is not a finding", f)
		}
		got = append(got, m[1]+":"+m[2]+" "+m[3])
	}
	slices.Sort(want)
	slices.Sort(got)
	got = slices.Compact(got)
	for _, f := range found {
		t.Log(f)
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
