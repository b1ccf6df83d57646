package images_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"monoplane.dev/nodeagent/images"
)

// childOf names the directory and the image of a process that TestKill starts.
const childOf = "MONOPLANE_TEST_IMAGES"

// TestKillChild is the process that TestKill kills: it pulls, makes and releases a root, and removes, for ever.
func TestKillChild(t *testing.T) {
	dir, ref, ok := strings.Cut(os.Getenv(childOf), "\n")
	if !ok {
		t.Skip("started by TestKill only")
	}
	s, err := images.Open(images.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("ready")
	for i := 0; ; i++ {
		if _, err := s.Pull(t.Context(), ref, images.PullOptions{}); err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("c%d-%d", os.Getpid(), i)
		if _, err := s.Mountable(t.Context(), images.RootRequest{ID: id, Image: ref, Copy: i%2 == 0}); err != nil {
			t.Fatal(err)
		}
		if err := s.Release(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
}

// A process may be killed at any moment: what is there is whole, and what is half done is removed by the next Open.
func TestKill(t *testing.T) {
	rounds, seed := 12, rand.Uint64()
	if testing.Short() {
		rounds = 3
	}
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	host := serve(t)
	img := imageOf(t, many(t, compression.GZip, "lower", 200), many(t, compression.ZStd, "upper", 200))
	push(t, host+"/app:v1", img)
	dir := filepath.Join(t.TempDir(), "images")
	for range rounds {
		killed(t, dir, host+"/app:v1", time.Duration(r.IntN(150))*time.Millisecond)
		s := openIn(t, dir)
		audit(t, s, img)
		if tmp, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(tmp) != 1 {
			t.Fatalf("what dead processes have left: %v, %v", tmp, err)
		}
		roots, err := s.Roots()
		if err != nil {
			t.Fatal(err)
		}
		for _, root := range roots {
			if err := s.Release(t.Context(), root.ID); err != nil {
				t.Fatal(err)
			}
		}
		got := pull(t, s, host+"/app:v1")
		root, err := s.Mountable(t.Context(), images.RootRequest{ID: "c", Image: got.ID, Copy: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"lower/0", "lower/199", "upper/0", "upper/199"} {
			if b, err := os.ReadFile(filepath.Join(root.Copied, name)); err != nil || string(b) != content(name) {
				t.Fatalf("%s: %.20q, %v", name, b, err)
			}
		}
		if err := errors.Join(s.Release(t.Context(), "c"), s.Remove(t.Context(), got.ID), s.Close()); err != nil {
			t.Fatal(err)
		}
		if left := remains(t, s); len(left) > 0 {
			t.Fatalf("left behind: %v", left)
		}
	}
}

func content(name string) string { return big(3000) + name }

func many(t testing.TB, c compression.Compression, folder string, n int) v1.Layer {
	var entries []entry
	for i := range n {
		name := fmt.Sprintf("%s/%d", folder, i)
		entries = append(entries, file(name, content(name)))
	}
	return layer(t, c, entries...)
}

// killed runs a process that works in the directory, and kills it some time after it has opened the store.
func killed(t *testing.T, dir, ref string, after time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKillChild$", "-test.v")
	child.Env = append(os.Environ(), childOf+"="+dir+"\n"+ref)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
		fmt.Fprintln(&said, lines.Text())
	}
	timer := time.AfterFunc(after, func() { _ = child.Process.Kill() })
	defer timer.Stop()
	for lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
	}
	if err := lines.Err(); err != nil {
		t.Errorf("what the process says: %v", err)
	}
	var exit *exec.ExitError
	if err := child.Wait(); !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("the process ended by itself: %v\n%s", err, said.String())
	}
}

// audit checks that everything that can be seen of a store is whole.
func audit(t *testing.T, s *images.Store, img v1.Image) {
	t.Helper()
	blobs, err := os.ReadDir(filepath.Join(s.Dir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blobs {
		f, err := os.Open(filepath.Join(s.Dir(), "blobs", b.Name()))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		f.Close()
		if got := hex.EncodeToString(sum.Sum(nil)); err != nil || got != b.Name() {
			t.Errorf("blob %s has the digest %s, %v", b.Name(), got, err)
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range config.RootFS.DiffIDs {
		folder := filepath.Join(s.Dir(), "layers", d.Hex)
		if _, err := os.Lstat(folder); errors.Is(err, os.ErrNotExist) {
			continue
		}
		name := []string{"lower", "upper"}[i]
		files, err := os.ReadDir(filepath.Join(folder, "fs", name))
		if _, info := os.Lstat(filepath.Join(folder, "info.json")); err != nil || info != nil || len(files) != 200 {
			t.Errorf("layer %s has %d files, %v, %v", name, len(files), err, info)
		}
	}
	all, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if err := s.Save(t.Context(), io.Discard, i.ID); err != nil {
			t.Errorf("an image that the index names: %v", err)
		}
	}
}

// Those who want the same image at the same time, in whichever process, share its downloads.
func TestConcurrentPulls(t *testing.T) {
	var asked atomic.Int64
	host := serve(t, on("/blobs/", &asked, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(honest(w)) }))
	push(t, host+"/app:v1", imageOf(t, many(t, compression.GZip, "lower", 50), many(t, compression.ZStd, "upper", 50)))
	dir := filepath.Join(t.TempDir(), "images")
	stores := []*images.Store{openIn(t, dir), openIn(t, dir), openIn(t, dir)}
	var all sync.WaitGroup
	for _, s := range stores {
		for range 3 {
			all.Go(func() {
				if _, err := s.Pull(t.Context(), host+"/app:v1", images.PullOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if n := asked.Load(); n != 3 {
		t.Errorf("blobs were asked for %d times, want 3: a configuration and two layers", n)
	}
}

// Pulls, roots, removals and loads from several processes do not get into each other's way.
func TestConcurrentChanges(t *testing.T) {
	host := serve(t)
	for i := range 3 {
		push(t, fmt.Sprintf("%s/app:v%d", host, i), imageOf(t, many(t, compression.GZip, "shared", 20),
			many(t, compression.ZStd, fmt.Sprint("own", i), 20)))
	}
	dir := filepath.Join(t.TempDir(), "images")
	var all sync.WaitGroup
	for n := range 4 {
		s := openIn(t, dir)
		all.Go(func() {
			for i := range 6 {
				ref, id := fmt.Sprintf("%s/app:v%d", host, (n+i)%3), fmt.Sprintf("c-%d-%d", n, i)
				if _, err := s.Pull(t.Context(), ref, images.PullOptions{}); err != nil {
					t.Error(err)
				}
				root, err := s.Mountable(t.Context(), images.RootRequest{ID: id, Image: ref})
				if errors.Is(err, images.ErrNotFound) {
					continue // another one has removed it
				}
				if err != nil {
					t.Error(err)
					continue
				}
				for _, lower := range root.Lower {
					if files, err := filepath.Glob(filepath.Join(lower, "*", "*")); err != nil || len(files) != 20 {
						t.Errorf("%s: %d files, %v", lower, len(files), err)
					}
				}
				if err := s.Remove(t.Context(), ref); err == nil {
					t.Error("an image in use was removed")
				}
				if err := s.Release(t.Context(), id); err != nil {
					t.Error(err)
				}
				err = s.Remove(t.Context(), ref)
				if err != nil && !errors.Is(err, images.ErrInUse) && !errors.Is(err, images.ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// After a boot of the machine, what is not known to have reached the disk is checked: a wrong blob goes with its
// image, layers are unpacked again.
func TestBoot(t *testing.T) {
	host := serve(t)
	dir := filepath.Join(t.TempDir(), "images")
	some := file("f", big(10_000))
	push(t, host+"/synced:v1", imageOf(t, layer(t, compression.GZip, some)))
	push(t, host+"/whole:v1", imageOf(t, many(t, compression.GZip, "who", 5)))
	// A layer that is not compressed is both, a blob and unpacked, by one digest: here that of one that is synced.
	push(t, host+"/torn:v1", imageOf(t, uncompressed(t, some), many(t, compression.GZip, "tor", 5)))
	s := openIn(t, dir)
	synced, whole, torn := pull(t, s, host+"/synced:v1"), pull(t, s, host+"/whole:v1"), pull(t, s, host+"/torn:v1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	rewrite(t, filepath.Join(dir, "boot"), func([]byte) []byte { return []byte("another") })
	var blob string
	rewrite(t, filepath.Join(dir, "index.json"), func(b []byte) []byte {
		var x struct {
			Images []map[string]any `json:"images"`
		}
		if err := json.Unmarshal(b, &x); err != nil {
			t.Fatal(err)
		}
		for _, i := range x.Images {
			if i["boot"] != nil {
				t.Errorf("after Close it is not known that %v has reached the disk", i["Tags"])
			}
			if i["ID"] != synced.ID {
				i["boot"] = "another"
			}
			if i["ID"] == torn.ID {
				blobs, _ := i["blobs"].([]any)
				first, _ := blobs[0].(map[string]any)
				digest, _ := first["digest"].(string)
				blob = strings.TrimPrefix(digest, "sha256:")
			}
		}
		out, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		return out
	})
	rewrite(t, filepath.Join(dir, "blobs", blob), func(b []byte) []byte { return make([]byte, len(b)) })
	s = openIn(t, dir)
	for img, want := range map[string]bool{synced.ID: true, whole.ID: true, torn.ID: false} {
		if _, err := s.Image(img); want != (err == nil) {
			t.Errorf("%s: %v; want it to be there: %v", img, err, want)
		}
	}
	for i, img := range []images.Image{synced, whole} {
		layer := filepath.Join(dir, "layers", strings.TrimPrefix(img.Layers[0], "sha256:"))
		if _, err := os.Stat(layer); (err == nil) != (i == 0) {
			t.Errorf("layer %d: %v", i, err)
		}
		if _, err := s.Mountable(t.Context(), images.RootRequest{ID: fmt.Sprint("c", i), Image: img.ID}); err != nil {
			t.Error(err)
		}
	}
	pull(t, s, host+"/torn:v1")
}

func rewrite(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(b), 0o600); err != nil {
		t.Fatal(err)
	}
}
