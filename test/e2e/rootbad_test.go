//go:build rootonly

package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	corev1 "k8s.io/api/core/v1"

	"monoplane.dev/test/containerd"
	"monoplane.dev/test/lifecycle"
)

// bad plays the scenarios of bad input with containers and real registries, each beside a neighbour that goes on.
func (c onContainerd) bad(t *testing.T) {
	all, err := lifecycle.Bad("containerd")
	if err != nil {
		t.Fatal(err)
	}
	images, err := newRegistry()
	if err != nil {
		t.Fatal(err)
	}
	namespace := c.namespace(t)
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			newBoxedBad(t, c.cluster, namespace, images, reserve).playBoxed(t, s)
		})
	}
}

// newBoxedBad makes the surroundings of a scenario with containers, and with registries that have the images.
func newBoxedBad(t *testing.T, c *cluster, namespace string, images http.Handler,
	reserve func(*testing.T) *reserved,
) *bad {
	t.Helper()
	b := newBad(t, c.scenes(t, namespace), c.client(t), namespace, containerd.BoxImage, reserve)
	b.registry, b.images = reserve(t), images
	guarded := reserve(t)
	if err := guarded.serve(withPassword(images)); err != nil {
		t.Fatal(err)
	}
	b.places.Seen, b.places.Registry, b.places.Private = actDir, b.registry.address(), guarded.address()
	if err := writeProgram(b.at("act"), b.program); err != nil {
		t.Fatal(err)
	}
	return b
}

// playBoxed plays a scenario with containers.
func (b *bad) playBoxed(t *testing.T, s *lifecycle.Scenario) {
	t.Helper()
	b.play(t, s, func(s *lifecycle.Scenario) *corev1.Pod { return boxedScenario(s, b.journal) })
}

// newRegistry returns a registry with the image box:1.
func newRegistry() (http.Handler, error) {
	layer, config, err := containerd.Box()
	if err != nil {
		return nil, err
	}
	return newRegistryOf("box", "1", layer, config)
}

// newRegistryOf returns a registry with one image of one layer.
func newRegistryOf(repository, tag string, layer, config []byte) (http.Handler, error) {
	r := emptyRegistry()
	_, err := r.image(repository, tag, layer, config)
	return r, err
}

// imageRegistry is a registry to which images are given without a network.
type imageRegistry struct{ http.Handler }

func emptyRegistry() imageRegistry {
	return imageRegistry{registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
}

// described says which blob or manifest is meant.
type described struct {
	MediaType string            `json:"mediaType"`
	Size      int               `json:"size"`
	Digest    string            `json:"digest"`
	Platform  map[string]string `json:"platform,omitempty"`
}

func describe(mediaType string, body []byte) described {
	return described{MediaType: mediaType, Size: len(body), Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(body))}
}

const (
	imageManifest = "application/vnd.docker.distribution.manifest.v2+json"
	imageList     = "application/vnd.docker.distribution.manifest.list.v2+json"
)

func (r imageRegistry) put(method, path, mediaType string, body []byte) error {
	req := httptest.NewRequest(method, path, bytes.NewReader(body))
	req.Header.Set("Content-Type", mediaType)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	if w.Code >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return nil
}

// image adds an image of one layer.
func (r imageRegistry) image(repository, tag string, layer, config []byte) (described, error) {
	upload := func(mediaType string, body []byte) (described, error) {
		b := describe(mediaType, body)
		return b, r.put(http.MethodPost, "/v2/"+repository+"/blobs/uploads/?digest="+b.Digest, mediaType, body)
	}
	configBlob, err := upload("application/vnd.docker.container.image.v1+json", config)
	layerBlob, err2 := upload("application/vnd.docker.image.rootfs.diff.tar", layer)
	manifest, err3 := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": imageManifest,
		"config": configBlob, "layers": []described{layerBlob}})
	if err := errors.Join(err, err2, err3); err != nil {
		return described{}, err
	}
	return describe(imageManifest, manifest), r.put(http.MethodPut, "/v2/"+repository+"/manifests/"+tag, imageManifest,
		manifest)
}

// list adds a list that has an image of the repository for one platform.
func (r imageRegistry) list(repository, tag, architecture string, of described) error {
	of.Platform = map[string]string{"os": "linux", "architecture": architecture}
	text, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": imageList, "manifests": []described{of}})
	return errors.Join(err, r.put(http.MethodPut, "/v2/"+repository+"/manifests/"+tag, imageList, text))
}

// withPassword lets nobody to a registry but a user with the right password.
func withPassword(images http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "user" || password != "right" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, r)
	}
}
