package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"
)

// upstreamRegistry is where the suite's images come from, where there is one.
const upstreamRegistry = "registry.k8s.io"

// serveImages makes the stand-in images and serves them in the network, as a mirror of the suite's registry. config is
// the file that tells the cluster so.
func (r *run) serveImages(ctx context.Context) (config string, end func() error, err error) {
	archive := filepath.Join(r.dir, "images.tar")
	source := filepath.Join(r.source, "test/images")
	if err := writeImages(archive, r.dir, filepath.Join(r.bin, "upstream"), source); err != nil {
		return "", nil, err
	}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if err := push(ctx, archive, handler); err != nil {
		return "", nil, err
	}
	l, err := listenIn(ctx, "/run/netns/"+r.network)
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: handler} //nolint:gosec // its only client is the cluster
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	end = func() error {
		err := server.Close()
		if e := <-done; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}
	config = filepath.Join(r.dir, "registries.yaml")
	text := fmt.Sprintf("registries:\n  %s:\n    mirrors: [http://%s]\n", upstreamRegistry, l.Addr())
	return config, end, os.WriteFile(config, []byte(text), 0o600)
}

// push puts the images of an archive into a registry that is asked directly.
func push(ctx context.Context, archive string, to http.Handler) error {
	open := func() (io.ReadCloser, error) { return os.Open(archive) }
	list, err := tarball.LoadManifest(open)
	if err != nil {
		return err
	}
	for _, image := range list {
		for _, tag := range image.RepoTags {
			from, err := name.NewTag(tag)
			if err != nil {
				return err
			}
			img, err := tarball.Image(open, &from)
			if err != nil {
				return err
			}
			ref, err := name.NewTag("localhost" + strings.TrimPrefix(tag, upstreamRegistry))
			if err != nil {
				return err
			}
			if err := remote.Write(ref, img, remote.WithContext(ctx), remote.WithTransport(direct{to})); err != nil {
				return fmt.Errorf("push %s: %w", tag, err)
			}
		}
	}
	return nil
}

// direct asks a handler without a network.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		req.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, req)
	res := w.Result()
	res.Request = req
	return res, nil
}

// listenIn listens on a loopback address of another network namespace.
func listenIn(ctx context.Context, namespace string) (net.Listener, error) {
	type listening struct {
		net.Listener
		err error
	}
	result := make(chan listening)
	go func() {
		runtime.LockOSThread() // the thread ends with this function, since it is never unlocked
		ns, err := os.Open(namespace)
		if err != nil {
			result <- listening{nil, err}
			return
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- listening{nil, fmt.Errorf("enter %s: %w", namespace, err)}
			return
		}
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		result <- listening{l, err}
	}()
	l := <-result
	return l.Listener, l.err
}
