package history_test

import (
	"encoding/json"
	"testing"

	k8sapps "k8s.io/api/apps/v1"
	k8score "k8s.io/api/core/v1"

	corev1 "monoplane.dev/api/core/v1"
	codecjson "monoplane.dev/codec/json"
	"monoplane.dev/controllers/internal/history"
)

// The state of a template is written, byte for byte, as kubectl writes it when it asks whether a revision is the
// present one. spec: CLI-2
func TestTemplatePatchIsKubectls(t *testing.T) {
	const text = `{"metadata":{"labels":{"b":"2","a":"1"},"annotations":{"note":"<a & b>"}},"spec":{"containers":[{` +
		`"name":"c","image":"x","resources":{"requests":{"cpu":"500m"}},"env":[{"name":"N","value":"1"}],` +
		`"ports":[{"containerPort":80}]}],"volumes":[{"name":"v","emptyDir":{}}],"terminationGracePeriodSeconds":30,` +
		`"restartPolicy":"Always"}}`
	var set k8sapps.StatefulSet
	var theirs k8score.PodTemplateSpec
	if err := json.Unmarshal([]byte(text), &theirs); err != nil {
		t.Fatal(err)
	}
	set.Spec.Template = theirs
	whole, err := json.Marshal(&set)
	if err != nil {
		t.Fatal(err)
	}
	var fields struct {
		Spec struct {
			Template map[string]any `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(whole, &fields); err != nil {
		t.Fatal(err)
	}
	fields.Spec.Template["$patch"] = "replace"
	want, err := json.Marshal(map[string]any{"spec": map[string]any{"template": fields.Spec.Template}})
	if err != nil {
		t.Fatal(err)
	}
	ours := &corev1.PodTemplateSpec{}
	ours.DecodeJSON(codecjson.NewDecoder([]byte(text)))
	got, err := history.TemplatePatch(ours)
	if err != nil || string(got) != string(want) {
		t.Errorf("%v\n%s, kubectl writes\n%s", err, got, want)
	}
}
