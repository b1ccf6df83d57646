package volumes_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/diskuse"
	"monoplane.dev/nodeagent/volumes"
)

// TestOverLimit measures the volumes of a pod that have a limit: one that cannot be read as a whole counts with what
// can be, and hides nothing of the others.
//
// spec: VOL-1
func TestOverLimit(t *testing.T) {
	limited := func(name, limit string) *corev1.Volume {
		return emptyDir(name, &corev1.EmptyDirVolumeSource{SizeLimit: &metav1.Quantity{String_: limit}})
	}
	const mib = 1 << 20
	for _, tc := range []struct {
		name   string
		closed map[string]int64 // What of a volume can be read though some of it cannot.
		pod    *corev1.Pod
		want   string
		fails  bool
	}{
		{"over in memory, where the kernel keeps the limit", nil, pod(emptyDir("a", &corev1.EmptyDirVolumeSource{
			Medium: "Memory", SizeLimit: &metav1.Quantity{String_: "1Mi"},
		})), "", false},
		{"within", nil, pod(limited("a", "3Mi"), limited("b", "3Mi"), emptyDir("c", nil)), "", false},
		{"over", nil, pod(limited("a", "3Mi"), limited("b", "1Mi")),
			`Usage of EmptyDir volume "b" exceeds the limit "1Mi". `, false},
		{"over beside a closed one", map[string]int64{"a": 0}, pod(limited("a", "3Mi"), limited("b", "1Mi")),
			`Usage of EmptyDir volume "b" exceeds the limit "1Mi". `, false},
		{"more than its limit can be read", map[string]int64{"a": 2 * mib}, pod(limited("a", "1Mi")),
			`Usage of EmptyDir volume "a" exceeds the limit "1Mi". `, false},
		{"nothing can be read", map[string]int64{"a": 0}, pod(limited("a", "3Mi"), limited("b", "3Mi")), "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			m := volumes.New(volumes.Config{Dir: dir, Measure: func(ctx context.Context, dir string) (diskuse.Size, error) {
				if some, ok := tc.closed[filepath.Base(dir)]; ok {
					return diskuse.Size{Bytes: some}, fs.ErrPermission
				}
				return diskuse.Of(ctx, dir)
			}})
			t.Cleanup(m.Close)
			for _, name := range []string{"a", "b", "c"} {
				at := filepath.Join(dir, "uid-a", "volumes", "kubernetes.io~empty-dir", name)
				if err := errors.Join(os.MkdirAll(at, 0o700), os.WriteFile(at+"/f", make([]byte, 2*mib), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			got, err := m.OverLimit(t.Context(), tc.pod)
			if got != tc.want || errors.Is(err, fs.ErrPermission) != tc.fails {
				t.Errorf("%q, %v; want %q", got, err, tc.want)
			}
		})
	}
}
