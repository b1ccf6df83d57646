package framework

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
)

func image(size int64, names ...string) *corev1.ContainerImage {
	return &corev1.ContainerImage{Names: names, SizeBytes: size}
}

func withImages(images ...*corev1.ContainerImage) *corev1.Node {
	return &corev1.Node{Status: &corev1.NodeStatus{Images: images}}
}

// Whatever comes, changes and goes, a snapshot counts the images as if it were made at once.
func TestImageIndex(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 6))
		s, model := NewSnapshot(), map[string]*corev1.Node{}
		for step := range 200 {
			name := fmt.Sprint("n", rng.IntN(6))
			node := withImages()
			for range rng.IntN(4) {
				node.Status.Images = append(node.Status.Images,
					image(rng.Int64N(3), fmt.Sprint("a", rng.IntN(5)), fmt.Sprint("a", rng.IntN(5))))
			}
			old := s.Node(name)
			switch {
			case rng.IntN(4) == 0:
				s.Set(name, nil)
				delete(model, name)
			case old == nil || rng.IntN(4) == 0:
				s.Set(name, NewNodeInfo(name, node))
				model[name] = node
			case rng.IntN(3) == 0:
				s.Set(name, old.WithPodUpdated(testPod("p", "cpu=1")))
			case rng.IntN(2) == 0:
				s.Set(name, old.WithNode(node))
				model[name] = node
			default:
				s.Set(name, old.Renewed(node))
				model[name] = node
			}
			want := map[string]int{}
			for name, node := range model {
				sizes := map[string]int64{}
				for _, i := range node.Status.Images {
					for _, n := range i.GetNames() {
						if _, ok := sizes[n]; !ok { // the first entry counts
							sizes[n] = i.GetSizeBytes()
							want[n]++
						}
					}
				}
				for i := range 5 {
					image := fmt.Sprint("a", i)
					size, has := s.Node(name).ImageSize(image)
					if w, ok := sizes[image]; w != size || ok != has {
						t.Fatalf("seed %d, step %d: %s of %s has size %d, want %d", seed, step, image, name, size, w)
					}
				}
			}
			for i := range 5 {
				image := fmt.Sprint("a", i)
				if got := s.NodesWithImage(image); got != want[image] {
					t.Fatalf("seed %d, step %d: %d nodes with %s, want %d", seed, step, got, image, want[image])
				}
			}
			if len(s.images) != len(want) || s.HasImages() != (len(want) > 0) {
				t.Fatalf("seed %d, step %d: index %v, want %v", seed, step, s.images, want)
			}
		}
	}
}

// A node that reports the same images again, as it does every few seconds, costs nothing.
func TestSameImagesAreShared(t *testing.T) {
	node := func() *corev1.Node { return withImages(image(1, "a", "b"), image(2, "c")) }
	n := NewNodeInfo("n", node())
	if n.Renewed(node()).images != n.images || n.WithNode(node()).images != n.images {
		t.Error("the same images are kept twice")
	}
	for what, other := range map[string]*corev1.Node{
		"a size": withImages(image(1, "a", "b"), image(3, "c")), "a name": withImages(image(1, "a", "b"), image(2, "d")),
		"one more": withImages(image(1, "a", "b"), image(2, "c", "d")), "one less": withImages(image(1, "a", "b")),
		"none": withImages(),
	} {
		if n.Renewed(other).images == n.images {
			t.Errorf("%s was not seen", what)
		}
	}
}
