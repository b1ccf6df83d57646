package json_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/codec/json"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// decodeValue reads one JSON object into v.
func decodeValue(data []byte, v json.Value) (strict []string, err error) {
	d := json.NewDecoder(data)
	v.DecodeJSON(d)
	d.End()
	return d.Strict(), d.Err()
}

// spec: OBJ-3
func TestUnknownAndDuplicateFieldsAreReportedByPath(t *testing.T) {
	for text, want := range map[string][]string{
		`{"spec":{"foo":1}}`:                       {`unknown field "spec.foo"`},
		`{"spec":{"nodeName":"a","nodeName":"b"}}`: {`duplicate field "spec.nodeName"`},
		`{"spec":{"containers":[{"imagee":"x"},{"name":"a","name":"b"}]}}`: {`unknown field "spec.containers[0].imagee"`,
			`duplicate field "spec.containers[1].name"`},
		`{"metadata":{"labels":{"a":"1","b":"2","a":"3"}}}`:                  {`duplicate field "metadata.labels.a"`},
		`{"spec":{"volumes":[{"name":"v","hostPath":{"path":"/","x":{}}}]}}`: {`unknown field "spec.volumes[0].hostPath.x"`},
		`{"spec":{"volumes":[{"volumeSource":{}}]}}`: {
			`unknown field "spec.volumes[0].volumeSource"`},
		`{"Spec":{},"kind":"Pod","kind":"Pod"}`: {`unknown field "Spec"`,
			`duplicate field "kind"`},
		`{"x":{"x":[1,{"y":2}]},"x":null,"x":1}`: {`unknown field "x"`},
		`{"sp\u0065c":{"a\"b":1}}`:               {`unknown field "spec.a\"b"`},
		`{"spec":{"overhead":{"cpu":"1","cpu":"2"}},"metadata":{"m":null}}`: {`duplicate field "spec.overhead.cpu"`,
			`unknown field "metadata.m"`},
	} {
		pod := new(corev1.Pod)
		strict, err := decodeValue([]byte(text), pod)
		if err != nil || !slices.Equal(strict, want) {
			t.Errorf("%s:\ngot  %q, %v\nwant %q", text, strict, err, want)
		}
	}
}

// The later of two values wins, and objects given twice are merged.
func TestDuplicateFieldsTakeTheLaterValue(t *testing.T) {
	pod := new(corev1.Pod)
	const text = `{"spec":{"nodeName":"a","hostname":"h"},
		"spec":{"nodeName":"b","containers":[{},{}],"containers":[{"name":"c"}]},
		"metadata":{"labels":{"a":"1","b":"1"},"labels":{"b":"2"},"labels":null,"annotations":{"a":"1"},"annotations":{"b":"1"}}}`
	if _, err := decodeValue([]byte(text), pod); err != nil {
		t.Fatal(err)
	}
	want := &corev1.Pod{
		Spec:     &corev1.PodSpec{NodeName: "b", Hostname: "h", Containers: []*corev1.Container{{Name: "c"}}},
		Metadata: &metav1.ObjectMeta{Annotations: map[string]string{"a": "1", "b": "1"}},
	}
	if !proto.Equal(pod, want) {
		t.Errorf("got %v", pod)
	}
}

// spec: OBJ-3
func TestEveryValueOfTheWrongTypeIsReported(t *testing.T) {
	const text = `{"metadata":{"name":5,"labels":{"a":true},"generation":"1"},
		"spec":{"containers":[{"name":"a"},{"ports":[{"containerPort":"80"}],"command":["a",1]}],"hostNetwork":"yes","volumes":{}},"status":[]}`
	pod := new(corev1.Pod)
	_, err := decodeValue([]byte(text), pod)
	var e *json.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v", err)
	}
	want := []json.TypeError{
		{Path: "metadata.name", Message: "expected a string, found a number"},
		{Path: "metadata.labels.a", Message: "expected a string, found a boolean"},
		{Path: "metadata.generation", Message: "expected an integer, found a string"},
		{Path: "spec.containers[1].ports[0].containerPort", Message: "expected an integer, found a string"},
		{Path: "spec.containers[1].command[1]", Message: "expected a string, found a number"},
		{Path: "spec.hostNetwork", Message: "expected a boolean, found a string"},
		{Path: "spec.volumes", Message: "expected an array, found an object"},
		{Path: "status", Message: "expected an object, found an array"},
	}
	if !slices.Equal(e.Types, want) {
		t.Errorf("got  %v\nwant %v", e.Types, want)
	}
	if got := e.Error(); !strings.HasPrefix(got,
		"metadata.name: expected a string, found a number; metadata.labels.a: ") {
		t.Errorf("got %s", got)
	}
}

// spec: OBJ-3
func TestBadSyntaxIsLocated(t *testing.T) {
	for text, want := range map[string]string{
		``:                           "line 1, column 1: unexpected end of JSON input, expected a value",
		`{`:                          "line 1, column 2: unexpected end of JSON input, expected a field name",
		"{\n  \"spec\": {,}}":        "line 2, column 12: unexpected character ',', expected a field name",
		`{"spec":{"nodeName":"a",}}`: "line 1, column 25: unexpected character '}', expected a field name",
		`{"spec":{"nodeName" "a"}}`:  "line 1, column 21: unexpected character '\"', expected ':' after a field name",
		`{"spec":{"nodeName":"a" "b":1}}`: "line 1, column 25: unexpected character '\"', expected ',' or '}' after a " +
			"field",
		`{"spec":{"containers":[{} {}]}}`: "line 1, column 27: unexpected character '{', expected ',' or ']' after an " +
			"element",
		`{"spec":{"containers":[{},]}}`:    "line 1, column 27: unexpected character ']', expected a value",
		`{"spec":nul}`:                     "line 1, column 9: unexpected character 'n', expected a value",
		`{"spec":{"nodeName":"a`:           "line 1, column 23: unexpected end of JSON input in a string",
		`{"spec":{"nodeName":"a\x"}}`:      "line 1, column 23: invalid escape in a string",
		"{\"spec\":{\"nodeName\":\"\t\"}}": "line 1, column 22: control character 0x09 in a string",
		`{} {}`:                            "line 1, column 4: unexpected character '{' after the document",
		`{"kind":"Pod"}]`:                  "line 1, column 15: unexpected character ']' after the document",
		`{"a":1.}`:                         "line 1, column 6: unexpected character '1', expected a value",
		`null`:                             "expected an object, found null",
		`[]`:                               "expected an object, found an array",
		"\x00":                             "line 1, column 1: unexpected character '\\x00', expected a value",
		"\ufeff{}":                         "line 1, column 1: unexpected character 'ï', expected a value",
	} {
		_, err := decodeValue([]byte(text), new(corev1.Pod))
		if err == nil || err.Error() != want {
			t.Errorf("%q:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// Null is no value, wherever it stands.
func TestNullIsAcceptedEverywhere(t *testing.T) {
	pod := new(corev1.Pod)
	const text = `{"apiVersion":null,"kind":null,
		"metadata":{"name":null,"generation":null,"creationTimestamp":null,"deletionGracePeriodSeconds":null,"labels":null,"annotations":{"a":null},"ownerReferences":[null],"finalizers":[null],"managedFields":[{"fieldsV1":null}]},
		"spec":{"hostNetwork":null,"priority":null,"overhead":{"cpu":null},"volumes":[{"hostPath":null}],"securityContext":{"supplementalGroups":[null]},
		"containers":[{"livenessProbe":{"httpGet":{"port":null}},"resources":null,"command":null,"env":[{"valueFrom":{"resourceFieldRef":{"divisor":null}}}]}]},"status":null}`
	if strict, err := decodeValue([]byte(text), pod); err != nil || len(strict) > 0 {
		t.Fatal(err, strict)
	}
	want := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{
			Annotations: map[string]string{"a": ""}, OwnerReferences: []*metav1.OwnerReference{{}}, Finalizers: []string{""},
			ManagedFields: []*metav1.ManagedFieldsEntry{{}},
		},
		Spec: &corev1.PodSpec{
			Overhead:        map[string]*metav1.Quantity{"cpu": {}},
			Volumes:         []*corev1.Volume{{VolumeSource: &corev1.VolumeSource{}}},
			SecurityContext: &corev1.PodSecurityContext{SupplementalGroups: []int64{0}},
			Containers: []*corev1.Container{{
				LivenessProbe: &corev1.Probe{Handler: &corev1.ProbeHandler{HttpGet: &corev1.HTTPGetAction{}}},
				Env: []*corev1.EnvVar{
					{ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{}}}},
			}},
		},
	}
	if !proto.Equal(pod, want) {
		t.Errorf("got %v", pod)
	}
}

func TestReportsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, `"x%d":1,"hostname":%d,`, i, i)
	}
	text := `{"spec":{` + b.String() + `"nodeName":"a"}}`
	d := json.NewDecoder([]byte(text))
	new(corev1.Pod).DecodeJSON(d)
	var e *json.Error
	if len(d.Strict()) != json.MaxReports || !errors.As(d.Err(), &e) || len(e.Types) != json.MaxReports {
		t.Errorf("got %d strict reports, %v", len(d.Strict()), e)
	}
}

// A long name is not repeated in the report of every field below it.
func TestPathsAreBounded(t *testing.T) {
	name := strings.Repeat("x", 1_000_000)
	text := `{"metadata":{"labels":{"` + name + `":1}},"` + name + `":1,"spec":{"nodeSelector":{"` + name + `":"a","` +
		name + `":"b"}}}`
	d := json.NewDecoder([]byte(text))
	new(corev1.Pod).DecodeJSON(d)
	want := []string{`unknown field "..."`, `duplicate field "spec.nodeSelector..."`}
	if err := d.Err(); !slices.Equal(d.Strict(), want) || err == nil ||
		err.Error() != "metadata.labels...: expected a string, found a number" {
		t.Errorf("got %.200q, %.200v", d.Strict(), err)
	}
}

func TestNestingIsLimited(t *testing.T) {
	for _, inner := range []string{"[", `{"a":`} {
		text := `{"x":` + strings.Repeat(inner, 1_000_000)
		_, err := decodeValue([]byte(text), new(corev1.Pod))
		if err == nil || !strings.Contains(err.Error(), "nested deeper than 512 levels") {
			t.Errorf("got %v", err)
		}
	}
	text := `{"metadata":{"managedFields":[{"fieldsV1":` + strings.Repeat("[", 508) + strings.Repeat("]", 508) + `}]}}`
	if _, err := decodeValue([]byte(text), new(corev1.Pod)); err != nil {
		t.Errorf("512 levels: %v", err)
	}
}

// What is decoded does not refer to the input, which callers reuse.
func TestDecodedValuesAreIndependentOfTheInput(t *testing.T) {
	text := []byte(`{"metadata":{"name":"a-name","labels":{"k":"v"},"managedFields":[{"fieldsV1":{"f:x":{}}}]},` +
		`"spec":{"overhead":{"cpu":"100m"}}}`)
	pod := new(corev1.Pod)
	if _, err := decodeValue(text, pod); err != nil {
		t.Fatal(err)
	}
	before := proto.Clone(pod)
	for i := range text {
		text[i] = '#'
	}
	if !proto.Equal(before, pod) {
		t.Errorf("got %v", pod)
	}
}

// A nil message counts as an empty one.
func TestNilIsWrittenAsEmpty(t *testing.T) {
	var pod *corev1.Pod
	if got := string(pod.AppendJSON(nil)); got != `{"metadata":{},"spec":{"containers":null},"status":{}}` {
		t.Errorf("got %s", got)
	}
	list := &corev1.PodList{Items: []*corev1.Pod{nil}}
	got := string(list.AppendJSON(nil))
	if got != `{"metadata":{},"items":[{"metadata":{},"spec":{"containers":null},"status":{}}]}` {
		t.Errorf("got %s", got)
	}
	pod = &corev1.Pod{Spec: &corev1.PodSpec{Containers: []*corev1.Container{},
		EphemeralContainers: []*corev1.EphemeralContainer{{}}}}
	got = string(pod.Spec.AppendJSON(nil))
	if got != `{"containers":[],"ephemeralContainers":[{"name":"","resources":{}}]}` {
		t.Errorf("got %s", got)
	}
}
