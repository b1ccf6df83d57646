package apiserver_test

import (
	"bytes"
	"os"
	"testing"

	"sigs.k8s.io/yaml"

	"monoplane.dev/codec"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// examples are pods in the shape of those that the documentation of Kubernetes publishes. That Kubernetes takes all of
// them is shown in test/oracle.
func examples(t *testing.T) []*corev1.Pod {
	t.Helper()
	file, err := os.ReadFile("testdata/pods.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []*corev1.Pod
	for i, doc := range bytes.Split(file, []byte("\n---\n")) {
		text, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			t.Fatalf("example %d: %v", i, err)
		}
		p := &corev1.Pod{}
		problems, err := codec.DecodeObject(text, p)
		if err != nil || len(problems) > 0 {
			t.Fatalf("example %d: %v, %v", i, problems, err)
		}
		p.Metadata.Namespace = "default"
		all = append(all, p)
	}
	return all
}

// Every published pod is taken. spec: OBJ-3, OBJ-4
func TestPublishedExamples(t *testing.T) {
	c := start(t)
	all := examples(t)
	for _, p := range all {
		if _, err := c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p}); err != nil {
			t.Errorf("%s: %v", p.Metadata.Name, err)
		}
	}
	if len(all) != 48 {
		t.Errorf("there are %d examples", len(all))
	}
}
