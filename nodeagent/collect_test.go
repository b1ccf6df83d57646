package nodeagent_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent/eviction"
	"monoplane.dev/nodeagent/gc"
	"monoplane.dev/nodeagent/runtime/fake"
)

// shelf is a runtime with images in a directory.
type shelf struct {
	*fake.Runtime

	dir string

	mu     sync.Mutex
	images []*runtimeapi.Image
	gone   []string
}

func (s *shelf) ImageFsInfo(
	context.Context, *runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: s.dir},
	}}}, nil
}

func (s *shelf) ListImages(
	context.Context, *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &runtimeapi.ListImagesResponse{Images: slices.Clone(s.images)}, nil
}

func (s *shelf) RemoveImage(
	_ context.Context, req *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := req.GetImage().GetImage()
	s.gone = append(s.gone, id)
	s.images = slices.DeleteFunc(s.images, func(i *runtimeapi.Image) bool { return i.GetId() == id })
	return &runtimeapi.RemoveImageResponse{}, nil
}

func (s *shelf) removed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.gone, " ")
}

func stock(w *world) *shelf {
	w.cri.Stop()
	s := &shelf{Runtime: w.rt, dir: w.t.TempDir(), images: []*runtimeapi.Image{
		{Id: "host", RepoTags: []string{"host"}, Size: 1}, {Id: "pause", Pinned: true, Size: 1}, {Id: "old", Size: 1},
	}}
	w.cri = inproc.NewServer(nil, nil)
	runtimeapi.RegisterRuntimeServiceServer(w.cri, s)
	runtimeapi.RegisterImageServiceServer(w.cri, s)
	conn := w.cri.Conn()
	w.cfg.Runtime, w.cfg.Images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	return s
}

// Images that nobody uses go when they are old enough, and under disk pressure before any pod does. spec: QOS-2
func TestImagesAreCollected(t *testing.T) {
	inWorld(t, func(w *world) {
		s := stock(w)
		var g gauge
		w.cfg.Readings = g.read
		w.cfg.ImageGC = gc.Policy{High: 100, MaxAge: 4 * time.Minute}
		w.start()
		w.create("a")
		time.Sleep(4 * time.Minute)
		if got := s.removed(); got != "" {
			t.Errorf("removed too early: %s", got)
		}
		time.Sleep(2 * time.Minute)
		if got := s.removed(); got != "old" {
			t.Errorf("removed %q", got)
		}
		w.phase("a", "Running")
	})
	inWorld(t, func(w *world) {
		s := stock(w)
		var g gauge
		w.cfg.Readings = func(ctx context.Context) eviction.Readings {
			if s.removed() != "" {
				g.set(eviction.ImageFS, 900)
			}
			return g.read(ctx)
		}
		w.cfg.Eviction.Hard = map[string]string{"imagefs.available": "50%"}
		w.start()
		w.create("a")
		time.Sleep(3*time.Minute + time.Second)
		g.set(eviction.ImageFS, 1)
		time.Sleep(time.Minute)
		if got := s.removed(); got != "old" {
			t.Errorf("removed %q", got)
		}
		w.phase("a", "Running")
		if got := w.nodeCondition("DiskPressure"); got != "True" {
			t.Errorf("DiskPressure is %s", got)
		}
	})
}

// The logs of a pod of which nothing else is left go, and no others.
func TestOrphanLogs(t *testing.T) {
	inWorld(t, func(w *world) {
		var g gauge
		w.cfg.Readings = g.read
		w.cfg.PodLogDir = w.t.TempDir()
		p := w.create("a")
		orphan := filepath.Join(w.cfg.PodLogDir, "default_gone_0b9a", "main")
		own := filepath.Join(w.cfg.PodLogDir, "default_a_"+p.GetMetadata().GetUid())
		for _, dir := range []string{orphan, own} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		// The files have the time of the machine, which is later than that of the bubble.
		early := time.Now().Add(-5 * time.Minute)
		for _, dir := range []string{filepath.Dir(orphan), own} {
			if err := os.Chtimes(dir, early, early); err != nil {
				t.Fatal(err)
			}
		}
		w.start()
		time.Sleep(time.Minute)
		if _, err := os.Stat(orphan); err != nil {
			t.Errorf("removed too early: %v", err)
		}
		time.Sleep(10 * time.Minute)
		if _, err := os.Stat(filepath.Dir(orphan)); !os.IsNotExist(err) {
			t.Errorf("left: %v", err)
		}
		if _, err := os.Stat(own); err != nil {
			t.Errorf("the logs of a pod that runs: %v", err)
		}
	})
}
