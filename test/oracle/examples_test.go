package oracle

import (
	"bytes"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Kubernetes takes all of the examples that the server is tried with, and what the server makes of them is the same.
// spec: OBJ-3, OBJ-4
func TestPublishedExamplesAreJudgedAlike(t *testing.T) {
	file, err := os.ReadFile("../../apiserver/testdata/pods.yaml")
	if err != nil {
		t.Fatal(err)
	}
	docs := bytes.Split(file, []byte("\n---\n"))
	for i, doc := range docs {
		p := &v1.Pod{}
		if err := yaml.UnmarshalStrict(doc, p); err != nil {
			t.Errorf("example %d: %v", i, err)
			continue
		}
		p.Namespace = "default"
		if _, errs := created(t, p); len(errs) > 0 {
			t.Errorf("%s: Kubernetes says %v", p.Name, errs)
		}
		report(t, []string{p.Name}, sameCreation(t, p))
	}
	if len(docs) != 48 {
		t.Errorf("%d examples", len(docs))
	}
}
