//go:build rootonly

package cridiff_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/images"
	imagescri "monoplane.dev/nodeagent/images/cri"
	"monoplane.dev/nodeagent/network/podnet"
	"monoplane.dev/nodeagent/runtime/connect"
	"monoplane.dev/nodeagent/runtime/host"
	"monoplane.dev/nodeagent/runtime/oci/helper"
	"monoplane.dev/test/containerd"
)

// patience bounds every wait; a healthy machine needs a small part of it.
const patience = time.Minute

// side is one of the two runtimes.
type side struct {
	runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient
	name   string
	// dir is where the cases have their files, on a file system whose mounts can be shared.
	dir string
}

func newSide(name, dir string, conn grpc.ClientConnInterface) *side {
	return &side{runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn), name, dir}
}

// world has both runtimes with the same images.
type world struct {
	theirs, ours *side
	logs         *lockedLog
	cgroups      string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if err := containerd.Missing(); err != nil {
		t.Fatal(err)
	}
	top, err := os.MkdirTemp("", "cd") // Short, because of the sockets in it.
	if err != nil {
		t.Fatal(err)
	}
	// Containers of other users enter the directories that they are given.
	if err := os.Chmod(top, 0o755); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	w := &world{logs: &lockedLog{}, cgroups: fmt.Sprintf("/mp-cridiff-%d", os.Getpid())}
	shared := filepath.Join(top, "cases")
	must(t, os.Mkdir(shared, 0o755)) //nolint:gosec // see above
	must(t, unix.Mount("tmpfs", shared, "tmpfs", 0, "mode=755"))
	must(t, unix.Mount("", shared, "", unix.MS_SHARED, ""))
	t.Cleanup(func() { must(t, unix.Unmount(shared, unix.MNT_DETACH)) })
	archive := filepath.Join(top, "images.tar")
	must(t, writeImages(archive))
	t.Cleanup(func() { w.removeGroups(t) })
	var both sync.WaitGroup
	both.Go(func() { w.theirs = w.startTheirs(t, top, archive, filepath.Join(shared, "theirs")) })
	w.ours = w.startOurs(t, top, archive, filepath.Join(shared, "ours"))
	both.Wait()
	if w.theirs == nil {
		t.FailNow()
	}
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startTheirs starts containerd. It is called beside the test's own goroutine: without containerd it returns nil.
func (w *world) startTheirs(t *testing.T, top, archive, dir string) *side {
	d, err := containerd.New(filepath.Join(top, "c"), "mp-cridiff", containerd.Overlay)
	if err != nil {
		t.Error(err)
		return nil
	}
	d.Log = w.logs
	t.Cleanup(func() {
		if err := d.End(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(w.logs.warnings())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err = d.Start(ctx); err == nil {
		var out string
		if out, err = d.Ctr("images", "import", archive); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	conn, err := grpc.NewClient(d.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { conn.Close() })
	return newSide("containerd", dir, conn)
}

func (w *world) startOurs(t *testing.T, top, archive, dir string) *side {
	t.Helper()
	program := new(helper.Program)
	logger := slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
	store, err := images.Open(images.Config{Dir: filepath.Join(top, "images"), Log: logger})
	must(t, err)
	f, err := os.Open(archive) //nolint:gosec // our own file
	must(t, err)
	_, err = store.Load(t.Context(), f)
	f.Close()
	must(t, err)
	cfg := podnet.Config{Cluster: top, Dir: filepath.Join(top, "network"), Log: logger,
		ServiceRanges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	network := podnet.New(cfg)
	conn, stop, err := connect.Host(host.Config{Dir: filepath.Join(top, "o"), Logger: logger, CgroupParent: w.cgroups,
		ClaimDir: filepath.Join(top, "claims"),
		OCI:      &host.OCI{Helper: program.File, Images: store, Service: imagescri.New(store, nil), Network: network}})
	must(t, err)
	t.Cleanup(func() {
		if err := errors.Join(stop(), network.Close(), podnet.Remove(context.Background(), cfg), program.Close(),
			store.Close()); err != nil {
			t.Error(err)
		}
	})
	s := newSide("oci", dir, conn)
	_, err = s.UpdateRuntimeConfig(t.Context(), &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: &runtimeapi.
		RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: "10.244.0.0/24"}}})
	must(t, err)
	return s
}

// removeGroups removes the cgroups of the cases, which have nothing in them.
func (w *world) removeGroups(t *testing.T) {
	tops, _ := filepath.Glob("/sys/fs/cgroup/*" + w.cgroups) // The pattern is well-formed.
	for _, top := range tops {
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			if err := os.Remove(dirs[i]); err != nil {
				t.Error(err)
			}
		}
	}
}

// lockedLog keeps what both runtimes say of what goes wrong.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !strings.Contains(string(b), "level=info") {
		l.text.Write(b)
	}
	return len(b), nil
}

func (l *lockedLog) warnings() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 8 << 10
	text := l.text.String()
	return "warnings:\n" + text[max(0, len(text)-most):]
}
