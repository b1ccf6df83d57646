package static

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/codec"
)

// maxManifest bounds a manifest, in bytes.
const maxManifest = 10 << 20

// parse returns the pods of a manifest: documents in YAML or JSON, each a Pod, a PodList or a List of pods. Strict
// says which fields are unknown or twice there.
func parse(data []byte) (pods []*corev1.Pod, strict []string, err error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("document %d: %w", n, err)
		}
		object, err := utilyaml.ToJSON(text)
		if err != nil {
			return nil, nil, fmt.Errorf("document %d: %w", n, err)
		}
		if bytes.Equal(bytes.TrimSpace(object), []byte("null")) {
			continue // only comments
		}
		more, odd, err := decode(object)
		if err != nil {
			return nil, nil, fmt.Errorf("document %d: %w", n, err)
		}
		pods, strict = append(pods, more...), append(strict, odd...)
	}
	return pods, strict, nil
}

// decode returns the pods of one document.
func decode(data []byte) (pods []*corev1.Pod, strict []string, err error) {
	var list struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, nil, err
	}
	if list.APIVersion != "v1" || list.Kind != "Pod" && !strings.HasSuffix(list.Kind, "List") {
		return nil, nil, fmt.Errorf("apiVersion %q, kind %q: expected a Pod or a PodList of v1", list.APIVersion, list.Kind)
	}
	if list.Kind == "Pod" {
		list.Items = []json.RawMessage{data}
	}
	for i, item := range list.Items {
		p := &corev1.Pod{}
		odd, err := codec.DecodeObject(item, p)
		if err != nil {
			return nil, nil, fmt.Errorf("pod %d: %w", i+1, err)
		}
		pods, strict = append(pods, p), append(strict, odd...)
	}
	return pods, strict, nil
}
