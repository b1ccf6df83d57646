package grpccodec_test

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/grpccodec"
)

// Both codecs read what either writes, ours also twice in a row from the same buffers.
func TestSpeaksLikeTheStandardCodec(t *testing.T) {
	standard := encoding.GetCodecV2("proto")
	ours := grpccodec.Codec{}
	if ours.Name() != standard.Name() {
		t.Errorf("name %q, want %q", ours.Name(), standard.Name())
	}
	large := &corev1.Pod{Metadata: &metav1.ObjectMeta{Annotations: map[string]string{
		"a": string(bytes.Repeat([]byte("x"), 2<<20))}}}
	for _, m := range []proto.Message{
		&corev1.Pod{},
		&corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}}},
		large,
		&corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "q"}},
		&grpc_health_v1.HealthCheckRequest{Service: "not ours"},
	} {
		for name, pair := range map[string][2]encoding.CodecV2{"read by us": {standard, ours},
			"written by us": {ours, standard}} {
			data, err := pair[0].Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			got := m.ProtoReflect().New().Interface()
			if err := pair[1].Unmarshal(data, got); err != nil || !proto.Equal(got, m) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
			data.Free()
		}
	}
	if _, err := ours.Marshal(&corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "\xff"}}); err == nil {
		t.Error("text that is not UTF-8 was encoded")
	}
}
