package hostinfo

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// hugePagesDir is where the kernel says what huge pages it has; other systems have none.
const hugePagesDir = "/sys/kernel/mm/hugepages"

// hugePages returns how many bytes are set aside for huge pages, by the size of a page.
func hugePages(dir string) map[int64]int64 {
	out := make(map[int64]int64)
	sizes, _ := filepath.Glob(filepath.Join(dir, "hugepages-*kB")) // the pattern is well-formed
	for _, of := range sizes {
		text := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(of), "hugepages-"), "kB")
		kib, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			continue
		}
		count, err := os.ReadFile(filepath.Join(of, "nr_hugepages"))
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(count)), 10, 64)
		if err != nil {
			continue
		}
		out[kib<<10] = n * kib << 10
	}
	return out
}
