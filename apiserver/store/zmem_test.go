package store

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"monoplane.dev/object"
	corev1 "monoplane.dev/api/core/v1"
)

func rss() string {
	b, _ := os.ReadFile("/proc/self/status")
	var out []string
	for _, l := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(l, "VmRSS") || strings.HasPrefix(l, "Rss") {
			out = append(out, l)
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return fmt.Sprint(strings.Join(out, " "), " heap ", m.HeapAlloc>>20, " sys ", m.Sys>>20)
}

func TestMem(t *testing.T) {
	dir := os.Getenv("MEMDIR")
	if dir == "" {
		t.Skip()
	}
	_, err := os.Stat(dir)
	t0 := time.Now()
	c0 := cpuTime()
	s, e := Open(t.Context(), testConfig(dir))
	if e != nil {
		t.Fatal(e)
	}
	t.Log("open", time.Since(t0), "cpu", cpuTime()-c0)
	t.Log(rss())
	if err != nil {
		fill(t, s, 10000)
		for i := range 30000 {
			key := podKey("default", fmt.Sprintf("pod-%06d", i%10000))
			s.Mutate(t.Context(), key, func(live object.Object) (*Txn, error) {
				p := object.Clone(live.(*corev1.Pod))
				p.Metadata.Generation++
				return &Txn{Ops: []Op{{Key: key, Object: p}}}, nil
			})
		}
		t.Log("filled", rss())
	}
	runtime.GC()
	t.Log("gc", rss())
	s.Close()
}
