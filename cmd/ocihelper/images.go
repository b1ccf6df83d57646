//go:build linux && cgo

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// placeImages mounts the files of images, and puts them where the container's mounts name them: in memory, in the
// helper's own mount namespace, so that nothing is left when it has ended and the container has.
//
// spec: CTR-6, VOL-1
func (b *bundle) placeImages(dir string) error {
	if len(b.Images) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=700"); err != nil {
		return fmt.Errorf("a directory for the images that are mounted cannot be mounted: %w", err)
	}
	for i, f := range b.Images {
		m, err := b.mount(i)
		if err != nil {
			return err
		}
		m.Source = filepath.Join(dir, strconv.Itoa(i))
		if err := b.placeImage(f, m.Source); err != nil {
			return fmt.Errorf("the mount of image %q at %q: %w", f.Name, m.Destination, err)
		}
	}
	return nil
}

// placeImage mounts one. In a pod with users of its own its files have the pod's ids: those of a copy anyhow.
func (b *bundle) placeImage(f files, at string) error {
	if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	layers := f.Layers
	switch {
	case len(layers) == 0:
		return fmt.Errorf("the description of the container: no layers")
	case len(layers) == 1:
		if err := unix.Mount(layers[0], at, "", unix.MS_BIND, ""); err != nil {
			return &os.PathError{Op: "bind", Path: layers[0], Err: err}
		}
		return nil
	case b.Users != "":
		users, err := os.Open(b.Users)
		if err != nil {
			return fmt.Errorf("the pod's user namespace: %w", err)
		}
		defer users.Close()
		if layers, err = mapLayers(layers, at+".layers", users); err != nil {
			return err
		}
	}
	return overlay{layers: layers, userXattr: b.UserXattr}.mount(at)
}
