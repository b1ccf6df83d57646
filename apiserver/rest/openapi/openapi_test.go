package openapi_test

import (
	"encoding/json"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/api/services"
	"monoplane.dev/apiserver/rest/openapi"
	"monoplane.dev/object"
)

// schema is what the tests read of one.
type schema struct {
	Description string
	Properties  map[string]schema
	AllOf       []struct {
		Ref string `json:"$ref"`
	}
}

// read returns the schemas of all kinds, by document.
func read(t *testing.T) map[string]map[string]schema {
	t.Helper()
	var operations []openapi.Operation
	kinds := []*object.Kind{corev1.BindingKind}
	for _, s := range services.All() {
		kinds = append(kinds, s.Kind)
	}
	for _, k := range kinds {
		prefix := "/api/" + k.Version
		if k.Group != "" {
			prefix = "/apis/" + k.Group + "/" + k.Version
		}
		add := func(method, verb string, body *object.Kind) {
			operations = append(operations, openapi.Operation{
				Prefix: prefix, Path: prefix + "/" + verb + "/" + k.Plural, Method: method, Verb: verb, Kind: k, Resource: k,
				Body: body,
			})
		}
		add("POST", "create", k)
		add("DELETE", "delete", nil)
		if k.NewList != nil {
			add("GET", "list", nil)
			add("GET", "watch", nil)
		}
	}
	d := openapi.New(operations, "1")
	get := func(url string, into any) {
		w := httptest.NewRecorder()
		path, _, _ := strings.Cut(url, "?")
		d.Serve(w, httptest.NewRequest("GET", url, nil), path)
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatalf("%s: %v", url, err)
		}
	}
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	get(openapi.Root, &index)
	all := make(map[string]map[string]schema)
	for name, entry := range index.Paths {
		var document struct {
			Components struct{ Schemas map[string]schema }
		}
		get(entry.ServerRelativeURL, &document)
		all[name] = document.Components.Schemas
	}
	return all
}

// Every schema and every property has a description, in which no identifier of ours is left. spec: CLI-2
func TestEverythingIsDescribed(t *testing.T) {
	identifier := regexp.MustCompile(`\b[A-Z]{2,}-\d+\b`)
	documents := read(t)
	groups := map[string]bool{}
	for _, s := range services.All() {
		groups[s.Kind.APIVersion()] = true
	}
	if len(documents) != len(groups) {
		t.Fatalf("%d documents for %d groups", len(documents), len(groups))
	}
	count := 0
	check := func(what, description string) {
		count++
		if description == "" || identifier.MatchString(strings.ReplaceAll(description, "UTF-8", "")) {
			t.Errorf("%s: description %q", what, description)
		}
	}
	for name, schemas := range documents {
		for message, s := range schemas {
			check(name+" "+message, s.Description)
			for property, p := range s.Properties {
				check(name+" "+message+"."+property, p.Description)
			}
		}
	}
	if count < 1000 {
		t.Errorf("only %d schemas and properties", count)
	}
}

// What kubectl explain shows of some fields. spec: CLI-2
func TestDescriptions(t *testing.T) {
	core := read(t)["api/v1"]
	for path, want := range map[string]string{
		"Pod":                            "Pod is a group of containers",
		"Pod.kind":                       `such as "Pod"`,
		"PodSpec.containers":             "at least one",
		"PodSpec.schedulingGroup":        "Not supported yet: setting it is refused.",
		"PodSpec.imagePullSecrets":       "Secrets with registry credentials",
		"EphemeralContainer.image":       "Image to run",
		"PersistentVolumeSpec.local":     "needs nodeAffinity",
		"PersistentVolumeSpec.rbd":       "Kept, but without effect yet.",
		"ResourceRequirements.limits":    "by resource name",
		"ObjectMeta.deletionTimestamp":   "When its deletion is due",
		"ContainerPort.containerPort":    ".",
		"Toleration":                     "taint",
		"ObjectFieldSelector.apiVersion": ".",
	} {
		message, field, _ := strings.Cut(path, ".")
		s, ok := core["io.k8s.api.core.v1."+message]
		if !ok {
			s = core["io.k8s.apimachinery.pkg.apis.meta.v1."+message]
		}
		got := s.Description
		if field != "" {
			got = s.Properties[field].Description
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: description %q, want %q", path, got, want)
		}
	}
	// A field of a message refers to its schema beside the description, and so keeps both.
	if p := core["io.k8s.api.core.v1.Pod"].Properties["spec"]; len(p.AllOf) != 1 ||
		p.AllOf[0].Ref != "#/components/schemas/io.k8s.api.core.v1.PodSpec" {
		t.Errorf("spec: %+v", p)
	}
}
