package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"monoplane.dev/nodeagent/images"
)

// The image that is pulled: as many bytes and files as a usual one of a language's run time.
const (
	imageLayers = 3
	imageBytes  = 200 << 20
	imageFiles  = 8000
)

// benchImages measures a pull from a registry on this machine, which downloads, checks and unpacks, beside tar, which
// only unpacks the same compressed layers.
func benchImages(ctx context.Context, e *env) error {
	if _, err := exec.LookPath("tar"); err != nil {
		fmt.Printf("pull of an image: skipped, %v\n", err)
		return nil
	}
	dir, err := e.tempDir()
	if err != nil {
		return err
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ref := strings.TrimPrefix(server.URL, "http://") + "/bench:v1"
	bytes, layers, err := pushImage(e, dir, ref)
	if err != nil {
		return err
	}
	mega := float64(bytes) / 1e6
	pull := func(round int) (float64, error) {
		at := filepath.Join(dir, fmt.Sprint("store", round))
		s, err := images.Open(images.Config{Dir: at})
		if err != nil {
			return 0, err
		}
		begin := time.Now()
		_, err = s.Pull(ctx, ref, images.PullOptions{})
		took := time.Since(begin)
		return mega / took.Seconds(), errors.Join(err, s.Close(), os.RemoveAll(at))
	}
	untar := func(round int) (float64, error) {
		at := filepath.Join(dir, fmt.Sprint("tar", round))
		var took time.Duration
		for i, layer := range layers {
			to := filepath.Join(at, fmt.Sprint(i))
			if err := os.MkdirAll(to, 0o700); err != nil {
				return 0, err
			}
			begin := time.Now()
			if out, err := exec.CommandContext(ctx, "tar", "-xf", layer, "-C", to).CombinedOutput(); err != nil {
				return 0, fmt.Errorf("tar: %w: %s", err, out)
			}
			took += time.Since(begin)
		}
		return mega / took.Seconds(), os.RemoveAll(at)
	}
	p, err := paired(max(3, e.size(7)), pull, untar)
	if err != nil {
		return err
	}
	const share = 0.6
	e.print(row{
		name: fmt.Sprintf("pull of an image, %.0f MB unpacked", mega), measured: fmt.Sprintf("%.0f MB/s", p.got),
		limit: fmt.Sprintf("tar x %.0f MB/s", p.limit), ratio: p.ratio, target: fmt.Sprintf(">= %.2f", share),
		met: p.ratio >= share,
	})
	return nil
}

// pushImage makes an image and pushes it. It returns how many bytes its files have, and the files with its layers.
func pushImage(e *env, dir, ref string) (int, []string, error) {
	r := rand.New(rand.NewPCG(1, 2))
	total := 0
	var layers []v1.Layer
	var paths []string
	for i := range imageLayers {
		text, n, err := archiveOf(r, e.size(imageBytes)/imageLayers, e.size(imageFiles)/imageLayers)
		if err != nil {
			return 0, nil, err
		}
		total += n
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(text)), nil
		})
		if err != nil {
			return 0, nil, err
		}
		path := filepath.Join(dir, fmt.Sprintf("layer%d.tar.gz", i))
		if err := writeLayer(path, layer); err != nil {
			return 0, nil, err
		}
		if layer, err = tarball.LayerFromFile(path); err != nil {
			return 0, nil, err
		}
		layers, paths = append(layers, layer), append(paths, path)
	}
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return 0, nil, err
	}
	c, err := img.ConfigFile()
	if err != nil {
		return 0, nil, err
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", runtime.GOARCH
	if img, err = mutate.ConfigFile(img, c); err != nil {
		return 0, nil, err
	}
	to, err := name.ParseReference(ref)
	if err != nil {
		return 0, nil, err
	}
	return total, paths, remote.Write(to, img)
}

func writeLayer(path string, layer v1.Layer) error {
	from, err := layer.Compressed()
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// archiveOf makes an archive of files that compress about as programs do.
func archiveOf(r *rand.Rand, size, files int) ([]byte, int, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	total := 0
	for i := range files {
		content := make([]byte, size/files)
		for at := 0; at < len(content); at += 16 {
			// Half of it repeats.
			copy(content[at:], fmt.Sprintf("%08x%s", r.Uint32(), "the same"))
		}
		total += len(content)
		h := &tar.Header{Name: fmt.Sprintf("d%02d/e%d/file-%d", i%50, i%7, i), Mode: 0o644, Size: int64(len(content)),
			Uid: os.Geteuid(), Gid: os.Getegid(), ModTime: time.Unix(1e9, 0)}
		if err := w.WriteHeader(h); err != nil {
			return nil, 0, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, 0, err
		}
	}
	err := w.Close()
	return out.Bytes(), total, err
}
