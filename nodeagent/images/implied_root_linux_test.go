//go:build rootonly

package images_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"monoplane.dev/nodeagent/images"
)

// A directory for which a layer has no entry is in an overlay as the layers below have it: in the root of a container,
// and in an image that it mounts.
func TestRootImpliedDirectories(t *testing.T) {
	s := open(t)
	eachImplied(t, s, func(t *testing.T, c impliedCase, image string) {
		root, err := s.Mountable(t.Context(), images.RootRequest{ID: "c", Image: image, Mounts: []string{image}})
		if err != nil {
			t.Fatal(err)
		}
		overlay(t, root, func(dir string) { c.check(t, dir) })
		overlay(t, images.Root{Lower: root.Mounts[0].Lower}, func(dir string) { c.check(t, dir) })
		if left, err := os.ReadDir(root.Upper); err != nil || len(left) > 0 {
			t.Errorf("the container has written %v, %v", left, err)
		}
		if err := s.Release(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
	})
}

// An image that has as many layers as overlayfs stacks can be used though one more belongs above them.
func TestRootImpliedAboveManyLayers(t *testing.T) {
	host, s := serve(t), open(t)
	layers := []v1.Layer{layer(t, compression.None, kept("a", 0o700))}
	for i := 1; i < 500; i++ {
		layers = append(layers, layer(t, compression.None, file(fmt.Sprint("a/", i), "")))
	}
	for n, copied := range map[int]bool{499: false, 500: true} {
		ref := fmt.Sprintf("%s/app:v%d", host, n)
		push(t, ref, imageOf(t, layers[:n]...))
		pull(t, s, ref)
		root, err := s.Mountable(t.Context(), images.RootRequest{ID: fmt.Sprint("c", n), Image: ref, Mounts: []string{ref}})
		if err != nil {
			t.Fatal(err)
		}
		if (root.Copied != "") != copied || (root.Mounts[0].Copied != "") != copied {
			t.Errorf("of %d layers it is copied: %q, %q", n, root.Copied, root.Mounts[0].Copied)
		}
		for _, dir := range []string{root.Copied, root.Mounts[0].Copied} {
			if dir != "" {
				impliedCase{want: map[string]string{"a": whole("a", 0o700)}}.check(t, dir)
			}
		}
	}
}
