package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/runtime/ocinode"
	"monoplane.dev/test/containerd"
)

// benchImagePods measures the way from create to Running of pods of an image that is on the node, each with a root and
// an address of its own, and without root with a user namespace.
func benchImagePods(ctx context.Context, e *env) error {
	if err := ocinode.Check(); err != nil {
		fmt.Printf("pods of images: skipped, %v\n", err)
		return nil
	}
	dir, err := e.tempDir()
	if err != nil {
		return err
	}
	archive, store := filepath.Join(dir, "images.tar"), filepath.Join(dir, "images")
	if err := containerd.WriteImages(archive); err != nil {
		fmt.Printf("pods of images: skipped, %v\n", err)
		return nil
	}
	load := exec.CommandContext(ctx, e.binary, "image", "load", archive, "--image-dir", store)
	if out, err := load.CombinedOutput(); err != nil {
		return fmt.Errorf("image load: %w: %s", err, out)
	}
	p, err := startProcess(ctx, e, filepath.Join(dir, "data"), "--runtime", "oci", "--image-dir", store)
	if err != nil {
		return err
	}
	return errors.Join(imagePods(ctx, e, p), p.down(), os.RemoveAll(store))
}

func imagePods(ctx context.Context, e *env, p *process) (err error) {
	c, err := p.client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	defer func() { err = errors.Join(err, removeAll(context.WithoutCancel(ctx), c)) }()
	watch, err := newRunWatch(ctx, c)
	if err != nil {
		return err
	}
	seen, err := oneAtATime(ctx, e, c, watch, 0, targets{"pod of an image, create to Running", 80, 200},
		func(i int) *corev1.Pod { return imagePod(podName("one", i)) })
	if err != nil {
		return err
	}
	if err := removeAll(ctx, c); err != nil {
		return err
	}
	n, err := together(ctx, e, c, watch, seen, "pods of an image", 6, imagePod)
	if err != nil {
		return err
	}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return ctx.Err()
	}
	children, err := privateOfChildren(fmt.Sprint(p.cmd.Process.Pid))
	if err != nil {
		return err
	}
	if len(children) < n {
		return fmt.Errorf("%d pods run, and the server has %d children", n, len(children))
	}
	// What the server holds for a pod is in the rows of idle pods without images. Few of the children are no shims.
	each := median(children)
	e.print(row{name: "  private memory of a shim of an idle one, median", measured: fmt.Sprintf("%.2f MB", each),
		target: "<= 3 MB", met: each <= 3})
	return nil
}

// imagePod is a pod of an image that the node has.
func imagePod(name string) *corev1.Pod {
	o := realPod(name)
	c := o.Spec.Containers[0]
	c.Image, c.Command, c.Args = containerd.BoxImage, []string{"sleep", "2147483647"}, nil
	return o
}
