package monoplane_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that docs/guarantees.md and docs/security.md name exists. spec: CLI-4
func TestGuaranteesNameRealTests(t *testing.T) {
	have := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range function.FindAllSubmatch(code, -1) {
			have[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"docs/guarantees.md", "docs/security.md"} {
		doc, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		named := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(doc), -1)
		if len(named) < 30 {
			t.Errorf("%s names only %d tests", path, len(named))
		}
		for _, name := range named {
			if !have[name] {
				t.Errorf("%s names %s, which does not exist", path, name)
			}
		}
	}
}
