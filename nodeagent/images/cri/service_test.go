package cri_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/images"
	"monoplane.dev/nodeagent/images/cri"
	"monoplane.dev/nodeagent/images/registry"
)

func serve(t *testing.T) string {
	t.Helper()
	known := ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/private/"):
			w.WriteHeader(http.StatusUnauthorized)
		case strings.Contains(r.URL.Path, "/broken/"):
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			known.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// push pushes an image that runs as a user.
func push(t *testing.T, ref, user string) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "f-" + user, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Config = "linux", runtime.GOARCH, v1.Config{User: user}
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	to, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(to, img); err != nil {
		t.Fatal(err)
	}
}

func service(t *testing.T) (*cri.Service, *images.Store) {
	t.Helper()
	s, err := images.Open(images.Config{
		Dir: filepath.Join(t.TempDir(), "images"), Registries: registry.Config{Attempts: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return cri.New(s, func() time.Time { return time.Unix(0, 5) }), s
}

func spec(image string) *runtimeapi.ImageSpec { return &runtimeapi.ImageSpec{Image: image} }

// spec: CTR-6
func TestImages(t *testing.T) {
	host := serve(t)
	s, store := service(t)
	ctx := t.Context()
	for user, want := range map[string]struct {
		uid  *runtimeapi.Int64Value
		name string
	}{
		"": {nil, ""}, "1000": {&runtimeapi.Int64Value{Value: 1000}, ""}, "7:8": {&runtimeapi.Int64Value{Value: 7}, ""},
		"app:staff": {nil, "app"},
	} {
		ref := host + "/app:v" + strings.ReplaceAll(user, ":", "-")
		push(t, ref, user)
		pulled, err := s.PullImage(ctx, &runtimeapi.PullImageRequest{Image: spec(ref)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec(ref), Verbose: true})
		if err != nil {
			t.Fatal(err)
		}
		img := got.GetImage()
		if img.GetId() != pulled.GetImageRef() || img.GetSize() == 0 || img.GetRepoTags()[0] != ref ||
			!strings.HasPrefix(img.GetRepoDigests()[0], host+"/app@sha256:") {
			t.Errorf("%v", img)
		}
		if diff := cmp.Diff(want.uid, img.GetUid(), protocmp.Transform()); diff != "" || img.GetUsername() != want.name {
			t.Errorf("user %q: %q, %s", user, img.GetUsername(), diff)
		}
		var info struct{ ImageSpec v1.ConfigFile }
		if err := json.Unmarshal([]byte(got.GetInfo()["info"]), &info); err != nil || info.ImageSpec.Config.User != user {
			t.Errorf("%v, %+v", err, info)
		}
	}
	all, err := s.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil || len(all.GetImages()) != 4 {
		t.Errorf("%v, %v; want 4 images", all, err)
	}
	one, err := s.ListImages(ctx, &runtimeapi.ListImagesRequest{
		Filter: &runtimeapi.ImageFilter{Image: spec(host + "/app:v7-8")},
	})
	if err != nil || len(one.GetImages()) != 1 {
		t.Errorf("%v, %v; want one image", one, err)
	}
	info, err := s.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if fs := info.GetImageFilesystems(); err != nil || len(fs) != 1 || fs[0].GetUsedBytes().GetValue() == 0 ||
		fs[0].GetFsId().GetMountpoint() != store.Dir() || fs[0].GetTimestamp() != 5 {
		t.Errorf("%v, %v", info, err)
	}
	in := one.GetImages()[0]
	if _, err := store.Mountable(ctx, images.RootRequest{ID: "c", Image: in.GetId()}); err != nil {
		t.Fatal(err)
	}
	_, err = s.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: spec(in.GetId())})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("an image in use: %v", err)
	}
	if err := store.Release(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: spec(in.GetRepoTags()[0])}); err != nil {
			t.Error(err)
		}
	}
	gone, err := s.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec(in.GetId())})
	if err != nil || gone.GetImage() != nil {
		t.Errorf("a removed image: %v, %v", gone, err)
	}
}

// An image with a name by which it was loaded is pinned, whatever else it is called: nobody could pull it again.
func TestLoadedImagesArePinned(t *testing.T) {
	host := serve(t)
	s, store := service(t)
	push(t, host+"/app:v1", "")
	pinned := func() (all []bool) {
		t.Helper()
		got, err := s.ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, img := range got.GetImages() {
			all = append(all, img.GetPinned())
		}
		return all
	}
	pull := func() {
		t.Helper()
		if _, err := s.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: spec(host + "/app:v1")}); err != nil {
			t.Fatal(err)
		}
	}
	pull()
	img, err := store.Image(host + "/app:v1")
	if got := pinned(); err != nil || !slices.Equal(got, []bool{false}) {
		t.Errorf("pulled: pinned %v, %v", got, err)
	}
	var archive bytes.Buffer
	err = store.Tag(t.Context(), img.ID, "app:dev")
	if err == nil {
		err = store.Save(t.Context(), &archive, "app:dev")
	}
	if err == nil {
		err = store.Remove(t.Context(), img.ID)
	}
	if err == nil {
		_, err = store.Load(t.Context(), &archive)
	}
	if got := pinned(); err != nil || !slices.Equal(got, []bool{true}) {
		t.Errorf("loaded: pinned %v, %v", got, err)
	}
	pull()
	if got := pinned(); !slices.Equal(got, []bool{true}) {
		t.Errorf("loaded, and pulled by another name: pinned %v", got)
	}
	if err := store.Remove(t.Context(), "app:dev"); err != nil {
		t.Fatal(err)
	}
	if got := pinned(); !slices.Equal(got, []bool{false}) {
		t.Errorf("with nothing but the name by which it was pulled: pinned %v", got)
	}
}

// spec: CTR-6
func TestErrors(t *testing.T) {
	host := serve(t)
	s, _ := service(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx   context.Context
		image string
		code  codes.Code
		begin string
	}{
		{t.Context(), host + "/none:v1", codes.NotFound, ""},
		{t.Context(), host + "/private/app:v1", codes.Unauthenticated, "pull access denied, repository does not exist or"},
		{t.Context(), host + "/broken/app:v1", codes.Unknown, "RegistryUnavailable: "},
		{t.Context(), "127.0.0.1:1/app:v1", codes.Unknown, "RegistryUnavailable: "},
		{t.Context(), "NO", codes.InvalidArgument, "invalid: "},
		{ended, host + "/none:v1", codes.Canceled, ""},
	} {
		_, err := s.PullImage(c.ctx, &runtimeapi.PullImageRequest{Image: spec(c.image)})
		if got := status.Convert(err); got.Code() != c.code || !strings.HasPrefix(got.Message(), c.begin) {
			t.Errorf("%s: %v; want %v that begins with %q", c.image, err, c.code, c.begin)
		}
	}
}
