package lifecycle_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"monoplane.dev/test/lifecycle"
)

// The table of what goes wrong names exactly the scenarios of bad input, and all tests of it.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/pods.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## When something goes wrong\n")
	section, _, ok2 := strings.Cut(section, "\n## ")
	if !ok || !ok2 {
		t.Fatal("the section is missing")
	}
	all, err := lifecycle.Bad("")
	if err != nil {
		t.Fatal(err)
	}
	var scenarios []string
	for _, s := range all {
		scenarios = append(scenarios, s.Name)
	}
	slices.Sort(scenarios)
	shown, tests := make(map[string]bool), make(map[string]bool)
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(line, "| \n"), "|")
		if len(cells) != 5 || strings.HasPrefix(line, "|--") || strings.HasPrefix(line, "| cause") {
			continue
		}
		by := strings.TrimSpace(cells[4])
		if name := strings.Trim(by, "`"); name != by {
			shown[name] = true
		} else {
			tests[by] = true
		}
	}
	if got := slices.Sorted(maps.Keys(shown)); !slices.Equal(got, scenarios) {
		t.Errorf("the table names %v, and there are %v", got, scenarios)
	}
	there := testsOf(t, "../../nodeagent", "../e2e")
	for name := range tests {
		if !there[name] {
			t.Errorf("the table names the test %s, which does not exist", name)
		}
	}
	for name := range there {
		if badTest.MatchString(name) && !tests[name] {
			t.Errorf("the table does not name the test %s", name)
		}
	}
}

var (
	testName = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	// badTest are the tests of bad input that no file of testdata can say.
	badTest = regexp.MustCompile(`^Test(Root)?Bad(Runtime|Disk|Log)`)
)

// testsOf returns the names of all tests below directories.
func testsOf(t *testing.T, dirs ...string) map[string]bool {
	t.Helper()
	out := make(map[string]bool)
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range testName.FindAllSubmatch(text, -1) {
				out[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}
