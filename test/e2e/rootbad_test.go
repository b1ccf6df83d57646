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
	"os"
	"path/filepath"
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
			b := newBad(t, c.scenes(t, namespace), c.client(t), namespace, containerd.BoxImage)
			b.registry, b.images = reserve(t), images
			guarded := reserve(t)
			if err := guarded.serve(withPassword(images)); err != nil {
				t.Fatal(err)
			}
			b.places.Seen, b.places.Registry, b.places.Private = actDir, b.registry.address(), guarded.address()
			if err := os.WriteFile(b.at("act"), b.program, 0o700); err != nil { //nolint:gosec // it is run
				t.Fatal(err)
			}
			b.play(t, s, func(s *lifecycle.Scenario) *corev1.Pod { return boxedScenario(s, b.journal) })
		})
	}
}

// actDir is where containers have the directory of their marks, with the program act.
const actDir = "/act"

// boxedScenario returns the pod of a scenario with containers that find the program and the journal of their marks in
// a directory of the machine.
func boxedScenario(s *lifecycle.Scenario, journal string) *corev1.Pod {
	p := s.Real(containerd.BoxImage, actDir+"/act", actDir+"/"+filepath.Base(journal))
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "act", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: filepath.Dir(journal)}}})
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			list[i].VolumeMounts = append(list[i].VolumeMounts, corev1.VolumeMount{Name: "act", MountPath: actDir})
		}
	}
	return p
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
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	type blob struct {
		MediaType string `json:"mediaType"`
		Size      int    `json:"size"`
		Digest    string `json:"digest"`
	}
	put := func(method, path string, body []byte) error {
		r := httptest.NewRequest(method, path, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code >= http.StatusMultipleChoices {
			return fmt.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return nil
	}
	upload := func(mediaType string, body []byte) (blob, error) {
		b := blob{mediaType, len(body), fmt.Sprintf("sha256:%x", sha256.Sum256(body))}
		return b, put(http.MethodPost, "/v2/"+repository+"/blobs/uploads/?digest="+b.Digest, body)
	}
	configBlob, err := upload("application/vnd.docker.container.image.v1+json", config)
	layerBlob, err2 := upload("application/vnd.docker.image.rootfs.diff.tar", layer)
	manifest, err3 := json.Marshal(map[string]any{"schemaVersion": 2,
		"mediaType": "application/vnd.docker.distribution.manifest.v2+json", "config": configBlob,
		"layers": []blob{layerBlob}})
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	return handler, put(http.MethodPut, "/v2/"+repository+"/manifests/"+tag, manifest)
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
