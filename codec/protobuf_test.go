package codec_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	k8score "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	k8smeta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"monoplane.dev/codec"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// kubernetesSerializer returns the serializer that client-go uses for Kubernetes protobuf.
func kubernetesSerializer(t *testing.T) *protobuf.Serializer {
	t.Helper()
	scheme := upstream(t)
	must(t, k8smeta.AddMetaToScheme(scheme))
	k8smeta.AddToGroupVersion(scheme, k8score.SchemeGroupVersion)
	return protobuf.NewSerializer(scheme, scheme)
}

// spec: OBJ-15, CLI-2
func TestEnvelopeIsThatOfKubernetes(t *testing.T) {
	serializer := kubernetesSerializer(t)
	eachRandom(t, func(t *testing.T, p pair, _ *rand.Rand, o protobufObject) {
		if strings.HasSuffix(p.name, "Options") {
			return // the scheme has them in every group; see TestOptionsBelongToEveryGroup
		}
		var theirs bytes.Buffer
		must(t, serializer.Encode(o, &theirs))
		ours := p.ours()
		must(t, codec.DecodeProtobuf(theirs.Bytes(), ours))
		b, err := codec.AppendProtobuf([]byte("before"), ours)
		must(t, err)
		b = b[len("before"):]
		back, _, err := serializer.Decode(b, nil, nil)
		must(t, err)
		p.setTypeMeta(back.(protobufObject))
		if !equality.Semantic.DeepEqual(o, back) {
			t.Errorf("changed on the way:\n%v\n%v", o, back)
		}
		body, err := proto.Marshal(ours)
		must(t, err)
		if spliced := codec.AppendProtobufBody(nil, p.ours(), body); len(spliced) != len(b) {
			t.Errorf("around a known body: %d bytes, want %d", len(spliced), len(b))
		}
	})
}

func TestBadEnvelopes(t *testing.T) {
	good, err := codec.AppendProtobuf(nil, &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "a"}})
	must(t, err)
	unknown := func(u *metav1.Unknown) []byte {
		b, err := proto.Marshal(u)
		must(t, err)
		return append([]byte(codec.ProtobufMagic), b...)
	}
	pod := &metav1.TypeMeta{ApiVersion: "v1", Kind: "Pod"}
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"empty":   {nil, "does not begin with"},
		"JSON":    {[]byte(`{"kind":"Pod"}`), "does not begin with"},
		"cut":     {good[:len(good)-1], "decode protobuf envelope: unexpected EOF"},
		"garbage": {[]byte("k8s\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), "decode protobuf envelope"},
		"other kind": {unknown(&metav1.Unknown{TypeMeta: &metav1.TypeMeta{ApiVersion: "v1", Kind: "Node"}}),
			`of kind "Node" in version "v1", expected kind "Pod" in version "v1"`},
		"other version": {unknown(&metav1.Unknown{TypeMeta: &metav1.TypeMeta{ApiVersion: "v2", Kind: "Pod"}}),
			`in version "v2"`},
		"compressed": {unknown(&metav1.Unknown{TypeMeta: pod, ContentEncoding: "gzip"}), `content encoding "gzip"`},
		"JSON within": {unknown(&metav1.Unknown{TypeMeta: pod, ContentType: "application/json", Raw: []byte("{}")}),
			`content type "application/json"`},
		"bad body":       {unknown(&metav1.Unknown{TypeMeta: pod, Raw: []byte{0xff}}), "decode protobuf: "},
		"bad UTF-8":      {unknown(&metav1.Unknown{TypeMeta: pod, Raw: []byte("\x0a\x03\x0a\x01\xff")}), "invalid UTF-8"},
		"bad type UTF-8": {append([]byte(codec.ProtobufMagic), "\x0a\x03\x12\x01\xff"...), `of kind "` + "\ufffd" + `"`},
	} {
		err := codec.DecodeProtobuf(test.data, new(corev1.Pod))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
	if _, err := codec.AppendProtobuf(nil, &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "\xff"}}); err == nil {
		t.Error("a string that is not UTF-8 was encoded")
	}
}

// Clients of newer servers send fields that this one does not have.
func TestUnknownProtobufFieldsAreDropped(t *testing.T) {
	raw := []byte("\x0a\x03\x0a\x01a" + "\xfa\x3f\x01x" + "\x12\x06\x52\x01n\xf8\x3f\x05")
	b := codec.AppendProtobufBody(nil, new(corev1.Pod), raw)
	pod := new(corev1.Pod)
	must(t, codec.DecodeProtobuf(b, pod))
	want := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "a"}, Spec: &corev1.PodSpec{NodeName: "n"}}
	if !proto.Equal(pod, want) {
		t.Errorf("got %v", pod)
	}
}

// spec: OBJ-7
func TestWatchFrames(t *testing.T) {
	pod := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "a"}}
	body, err := codec.AppendProtobuf(nil, pod)
	must(t, err)
	var stream []byte
	for _, event := range []object.EventType{object.Added, object.Modified, object.Bookmark} {
		stream, err = codec.AppendEventFrame(stream, event, body)
		must(t, err)
	}
	// Kubernetes reads it.
	for _, want := range []object.EventType{object.Added, object.Modified, object.Bookmark} {
		size := int(binary.BigEndian.Uint32(stream))
		var event k8smeta.WatchEvent
		must(t, event.Unmarshal(stream[4:4+size]))
		stream = stream[4+size:]
		back := new(corev1.Pod)
		must(t, codec.DecodeProtobuf(event.Object.Raw, back))
		if event.Type != string(want) || !bytes.Equal(event.Object.Raw, body) || !proto.Equal(pod, back) {
			t.Errorf("Kubernetes reads %v", event)
		}
	}
	if len(stream) > 0 {
		t.Errorf("%d bytes follow", len(stream))
	}
}
