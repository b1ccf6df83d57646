package gc_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/gc"
)

func image(id string, size uint64, tags ...string) *runtimeapi.Image {
	return &runtimeapi.Image{Id: id, Size: size, RepoTags: tags}
}

// collect returns what is removed, none of which makes more room than its own size.
func collect(g *gc.Images, now time.Time, p gc.Policy, toFree int64) (removed []string) {
	g.Collect(now, p, toFree, func(id string) (int64, error) {
		removed = append(removed, id)
		return 0, nil
	})
	return removed
}

func TestImages(t *testing.T) {
	p := gc.Policy{}.Complete()
	var g gc.Images
	start := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	all := []*runtimeapi.Image{image("a", 10, "reg/a:1"), image("b", 20), image("c", 30), {Id: "pause", Pinned: true}}
	byTag := &runtimeapi.Container{Image: &runtimeapi.ImageSpec{Image: "reg/a:1"}}
	byID := &runtimeapi.Container{ImageRef: "b"}
	g.Observe(at(0), all, []*runtimeapi.Container{byTag, byID})
	expect := func(now time.Time, free int64, want ...string) {
		t.Helper()
		if got := collect(&g, now, p, free); !slices.Equal(got, want) {
			t.Errorf("after %s, to free %d: %v, want %v", now.Sub(start), free, got, want)
		}
	}
	expect(at(time.Minute), -1) // too young
	expect(at(2*time.Minute), -1, "c")
	g.Observe(at(3*time.Minute), all, []*runtimeapi.Container{byID})
	expect(at(4*time.Minute), -1, "c", "a") // a was in use 4 minutes ago
	expect(at(4*time.Minute), 30, "c")
	expect(at(4*time.Minute), 31, "c", "a")
	expect(at(4*time.Minute), 0)
	g.Observe(at(5*time.Minute), all[1:], nil)
	expect(at(5*time.Minute-time.Second), -1, "c") // b was seen in use less than 2 minutes ago
	p.MaxAge = 3 * time.Minute
	expect(at(6*time.Minute), 0, "c", "b")
}

// Images whose files containers mount are in use.
//
// spec: CTR-6
func TestMountedImagesStay(t *testing.T) {
	var g gc.Images
	start := time.Unix(1000, 0)
	g.Observe(start, []*runtimeapi.Image{image("a", 10), image("b", 10), image("c", 10)}, []*runtimeapi.Container{
		{ImageRef: "x", Annotations: map[string]string{"monoplane.dev/volume-images": "a,c"}}})
	if got := collect(&g, start.Add(time.Hour), gc.Policy{}.Complete(), -1); !slices.Equal(got, []string{"b"}) {
		t.Errorf("removed: %v", got)
	}
}

// What others brought into a runtime is theirs.
func TestImagesOfOthersStay(t *testing.T) {
	g := gc.Images{Ours: func(c *runtimeapi.Container) bool { return c.GetLabels()["owner"] == "us" }}
	all := []*runtimeapi.Image{image("ours", 10), image("theirs", 10), image("idle", 10)}
	start := time.Unix(1000, 0)
	g.Observe(start, all, []*runtimeapi.Container{
		{ImageRef: "ours", Labels: map[string]string{"owner": "us"}}, {ImageRef: "theirs"},
	})
	g.Observe(start.Add(time.Minute), all, nil)
	if got := collect(&g, start.Add(time.Hour), gc.Policy{}.Complete(), -1); !slices.Equal(got, []string{"ours"}) {
		t.Errorf("removed: %v", got)
	}
}

// What cannot be removed, such as an image that another cluster uses, frees nothing: others go in its place, and the
// next look tries those first. What is removed counts with the room that it has made, if that is more than its size.
//
// spec: QOS-2
func TestImagesThatCannotGo(t *testing.T) {
	p := gc.Policy{}.Complete()
	var g gc.Images
	start := time.Unix(1000, 0)
	all := []*runtimeapi.Image{image("a", 100), image("b", 100), image("c", 10), image("d", 10), image("e", 10)}
	look := func(at time.Duration, toFree int64, wantTried string, wantGone int) {
		t.Helper()
		g.Observe(start.Add(at), all, nil)
		var tried []string
		gone := g.Collect(start.Add(at), p, toFree, func(id string) (int64, error) {
			tried = append(tried, id)
			if id == "a" || id == "b" {
				return 0, errors.New("in use by others")
			}
			all = slices.DeleteFunc(all, func(i *runtimeapi.Image) bool { return i.GetId() == id })
			return 35, nil
		})
		if got := strings.Join(tried, " "); got != wantTried || gone != wantGone {
			t.Errorf("after %s %q were tried and %d have gone, want %q and %d", at, got, gone, wantTried, wantGone)
		}
	}
	look(0, 30, "", 0)
	look(5*time.Minute, 30, "a b c", 1)
	look(6*time.Minute, -1, "d e", 2) // The others are in use, as far as is known.
	all = append(all, image("f", 10))
	look(10*time.Minute, 30, "a b", 0) // f is too young.
	look(15*time.Minute, 30, "f", 1)
}

func TestToFree(t *testing.T) {
	p := gc.Policy{}.Complete()
	for _, x := range []struct{ size, available, want int64 }{
		{100, 16, 0}, {100, 15, 5}, {100, 0, 20}, {0, 0, 0},
	} {
		if got := p.ToFree(x.size, x.available); got != x.want {
			t.Errorf("%d of %d: %d, want %d", x.available, x.size, got, x.want)
		}
	}
	if got := (gc.Policy{High: 100}).Complete().ToFree(100, 0); got != 0 {
		t.Errorf("switched off: %d", got)
	}
}
