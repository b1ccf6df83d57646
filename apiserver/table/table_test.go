package table_test

import (
	"encoding/json"
	"testing"
	"time"

	"monoplane.dev/apiserver/table"
	"monoplane.dev/codec/value"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// spec: CLI-3
func TestTable(t *testing.T) {
	b := table.AppendHead(nil, &metav1.ListMeta{ResourceVersion: "7", Continue: "c"}, []table.Column{
		{Name: "Name", Type: "string", Format: "name", Description: `The "name".`},
		{Name: "Nominated", Type: "string", Priority: 1},
	})
	b = table.AppendRow(b, []any{"a", 1, int64(2), int32(3), true, nil, 1.5}, []byte(`{"x":1}`))
	b = append(b, ',')
	b = table.AppendRow(b, nil, nil)
	b = table.AppendTail(b)
	want := `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7","continue":"c"},` +
		`"columnDefinitions":[` +
		`{"name":"Name","type":"string","format":"name","description":"The \"name\".","priority":0},` +
		`{"name":"Nominated","type":"string","format":"","description":"","priority":1}],"rows":[` +
		`{"cells":["a",1,2,3,true,null,"1.5"],"object":{"x":1}},{"cells":[],"object":null}]}`
	if string(b) != want || !json.Valid(b) {
		t.Errorf("got  %s\nwant %s", b, want)
	}
	got := string(table.AppendTail(table.AppendHead(nil, &metav1.ListMeta{}, nil)))
	if got != `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":null,"rows":[]}` {
		t.Errorf("without columns: %s", got)
	}
}

func TestDefault(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "a", CreationTimestamp: value.Time(now.Add(-90 * time.Second))}}
	if got := (table.Default{}).Cells(p, now); got[0] != "a" || got[1] != "90s" {
		t.Errorf("cells %v", got)
	}
	if got := (table.Default{}).Cells(&corev1.Pod{}, now); got[0] != "" || got[1] != "<unknown>" {
		t.Errorf("cells of an empty object %v", got)
	}
}

func TestParseInclude(t *testing.T) {
	for s, want := range map[string]table.Include{
		"": table.IncludeMetadata, "Metadata": table.IncludeMetadata, "None": table.IncludeNone,
		"Object": table.IncludeObject,
	} {
		if got, ok := table.ParseInclude(s); !ok || got != want {
			t.Errorf("%q: %v, %v", s, got, ok)
		}
	}
	if _, ok := table.ParseInclude("object"); ok {
		t.Error(`"object" was accepted`)
	}
}
