package negotiate_test

import (
	"testing"

	"monoplane.dev/apiserver/rest/negotiate"
)

const (
	asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asMeta  = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// spec: CLI-2, OBJ-15
func TestAccept(t *testing.T) {
	tests := []struct {
		name   string
		accept []string
		stream bool
		want   negotiate.Output
		refuse bool
	}{
		{name: "absent"},
		{name: "empty", accept: []string{""}},
		{name: "anything", accept: []string{"*/*"}},
		{name: "any application", accept: []string{"application/*"}},
		{name: "json", accept: []string{"application/json"}},
		{name: "json with charset", accept: []string{"application/json; charset=utf-8"}},
		{name: "json stream", accept: []string{"application/json;stream=watch"}, stream: true},
		{name: "typed client", accept: []string{"application/vnd.kubernetes.protobuf,application/json"},
			want: negotiate.Output{Encoding: negotiate.Protobuf}},
		{name: "two headers", accept: []string{"text/html", "application/yaml"},
			want: negotiate.Output{Encoding: negotiate.YAML}},
		{name: "kubectl get", accept: []string{asTable +
			",application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"},
			want: negotiate.Output{Form: negotiate.Table}},
		{name: "unknown version falls back",
			accept: []string{"application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"}},
		{name: "metadata client", accept: []string{asMeta + ",application/json"},
			want: negotiate.Output{Encoding: negotiate.Protobuf, Form: negotiate.Metadata}},
		{name: "metadata list", accept: []string{"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
			want: negotiate.Output{Form: negotiate.Metadata}},
		{name: "weights", accept: []string{"application/json;q=0.5, application/yaml;q=0.9"},
			want: negotiate.Output{Encoding: negotiate.YAML}},
		{name: "specific before wildcard", accept: []string{"*/*, application/yaml"},
			want: negotiate.Output{Encoding: negotiate.YAML}},
		{name: "browser", accept: []string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}},
		{name: "weight 0 refuses", accept: []string{"application/json;q=0"}, refuse: true},
		{name: "bad weight refuses", accept: []string{"application/json;q=x"}, refuse: true},
		{name: "unknown type", accept: []string{"text/plain"}, refuse: true},
		{name: "no table in protobuf", accept: []string{"application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io"},
			refuse: true},
		{name: "unknown form", accept: []string{"application/json;as=Picture;v=v1;g=meta.k8s.io"}, refuse: true},
		{name: "no yaml stream", accept: []string{"application/yaml"}, stream: true, refuse: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := negotiate.Accept(tt.accept, negotiate.Offers{Stream: tt.stream})
			if ok == tt.refuse || got != tt.want {
				t.Errorf("Accept(%q) = %+v, %v; want %+v, %v", tt.accept, got, ok, tt.want, !tt.refuse)
			}
		})
	}
}

func TestBody(t *testing.T) {
	for header, want := range map[string]negotiate.Encoding{
		"": negotiate.JSON, "application/json": negotiate.JSON, "Application/JSON; charset=utf-8": negotiate.JSON,
		"application/yaml": negotiate.YAML, "application/vnd.kubernetes.protobuf": negotiate.Protobuf,
	} {
		if got, ok := negotiate.Body(header); !ok || got != want {
			t.Errorf("Body(%q) = %v, %v", header, got, ok)
		}
	}
	for _, header := range []string{"text/plain", "application/x-www-form-urlencoded", ";",
		"application/json,application/yaml"} {
		if _, ok := negotiate.Body(header); ok && header != ";" {
			t.Errorf("Body(%q) was accepted", header)
		}
	}
}

func TestPatch(t *testing.T) {
	if got, ok := negotiate.Patch("application/merge-patch+json; charset=utf-8"); !ok || got != negotiate.TypeMergePatch {
		t.Errorf("Patch = %q, %v", got, ok)
	}
	for _, header := range []string{"", "application/json", "application/patch"} {
		if _, ok := negotiate.Patch(header); ok {
			t.Errorf("Patch(%q) was accepted", header)
		}
	}
}

func FuzzAccept(f *testing.F) {
	f.Add(asTable + ",application/json;q=0.1")
	f.Add(";;;,,q=;as=")
	f.Fuzz(func(t *testing.T, header string) {
		out, ok := negotiate.Accept([]string{header}, negotiate.Offers{})
		if !ok && out != (negotiate.Output{}) {
			t.Errorf("refused with %+v", out)
		}
		negotiate.Body(header)
		negotiate.Patch(header)
	})
}
