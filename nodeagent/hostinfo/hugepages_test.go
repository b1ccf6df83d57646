package hostinfo

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

func TestHugePages(t *testing.T) {
	dir := t.TempDir()
	for of, n := range map[string]string{"hugepages-2048kB": "3\n", "hugepages-1048576kB": "0\n", "hugepages-xkB": "1",
		"hugepages-64kB": "many"} {
		if err := os.Mkdir(filepath.Join(dir, of), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, of, "nr_hugepages"), []byte(n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := hugePages(dir); !maps.Equal(got, map[int64]int64{2 << 20: 6 << 20, 1 << 30: 0}) {
		t.Errorf("%v", got)
	}
	if got := hugePages(filepath.Join(dir, "none")); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
