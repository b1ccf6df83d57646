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

// The document of a pod's life names, for each thing that holds, a scenario that has its identifier, or a test that
// exists; and each scenario is there for something. spec: CLI-4
func TestLifecycleDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/lifecycle.md")
	if err != nil {
		t.Fatal(err)
	}
	titles := make(map[string]string)
	good, err := lifecycle.All("")
	if err != nil {
		t.Fatal(err)
	}
	bad, err := lifecycle.Bad("")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range slices.Concat(good, bad) {
		titles[s.Name] = s.Title
	}
	there := testsOf(t, "../..")
	shown := make(map[string]bool)
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(line, "| \n"), "|")
		if len(cells) != 3 || strings.HasPrefix(line, "|--") || strings.HasPrefix(line, "| what holds") {
			continue
		}
		rows++
		ids, by := identifier.FindAllString(cells[1], -1), cells[2]
		if len(ids) == 0 || strings.TrimSpace(by) == "" {
			t.Errorf("nothing is named by: %s", line)
		}
		for _, id := range ids {
			if !tellsOf(id, by, titles) {
				t.Errorf("no scenario of this line has %s in its title: %s", id, line)
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(by, -1) {
			if shown[m[1]] = true; titles[m[1]] == "" {
				t.Errorf("there is no scenario %s", m[1])
			}
		}
		for _, name := range called.FindAllString(by, -1) {
			if !there[name] {
				t.Errorf("there is no test %s", name)
			}
		}
	}
	if rows < 80 {
		t.Errorf("the document has %d lines", rows)
	}
	for _, s := range good {
		if !shown[s.Name] {
			t.Errorf("the scenario %s shows nothing of the document", s.Name)
		}
	}
}

// tellsOf reports whether a scenario of a line has the identifier in its title; one that names a test may have it
// there.
func tellsOf(id, by string, titles map[string]string) bool {
	if called.MatchString(by) {
		return true
	}
	for _, m := range quoted.FindAllStringSubmatch(by, -1) {
		if slices.Contains(identifier.FindAllString(titles[m[1]], -1), id) {
			return true
		}
	}
	return false
}

var (
	identifier = regexp.MustCompile(`\b[A-Z]{2,8}-\d+\b`)
	quoted     = regexp.MustCompile("`([a-z0-9-]+)`")
	called     = regexp.MustCompile(`\bTest[A-Z]\w+`)
	testName   = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
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
