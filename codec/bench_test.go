package codec_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	k8score "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"monoplane.dev/codec"

	corev1 "monoplane.dev/api/core/v1"
)

// podJSON returns a pod of 4.3 KB as a server holds it once it runs.
func podJSON(tb testing.TB) []byte {
	tb.Helper()
	b, err := os.ReadFile("testdata/pod.json")
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func podOf(tb testing.TB, text []byte) *corev1.Pod {
	tb.Helper()
	pod := new(corev1.Pod)
	if strict, err := codec.DecodeObject(text, pod); err != nil || len(strict) > 0 {
		tb.Fatal(err, strict)
	}
	return pod
}

func must(tb testing.TB, err error) {
	if err != nil {
		tb.Fatal(err)
	}
}

// contender is one way to encode or decode the pod.
type contender struct {
	name string
	run  func() error
}

func encoders(tb testing.TB) []contender {
	text := podJSON(tb)
	pod := podOf(tb, text)
	k8spod := new(k8score.Pod)
	must(tb, json.Unmarshal(text, k8spod))
	buf := make([]byte, 0, 2*len(text))
	return []contender{
		{"monoplane", func() error {
			buf = codec.AppendObject(buf[:0], pod)
			return nil
		}},
		{"kubernetes", func() error {
			_, err := json.Marshal(k8spod)
			return err
		}},
		{"protojson", func() error {
			_, err := protojson.Marshal(pod)
			return err
		}},
		{"protobuf", func() error {
			var err error
			buf, err = codec.AppendProtobuf(buf[:0], pod)
			return err
		}},
	}
}

func decoders(tb testing.TB) []contender {
	text := podJSON(tb)
	pod := podOf(tb, text)
	protoText, err := protojson.Marshal(pod)
	must(tb, err)
	body, err := codec.AppendProtobuf(nil, pod)
	must(tb, err)
	return []contender{
		{"monoplane", func() error {
			_, err := codec.DecodeObject(text, new(corev1.Pod))
			return err
		}},
		{"kubernetes", func() error {
			_, err := kjson.UnmarshalStrict(text, new(k8score.Pod))
			return err
		}},
		{"protojson", func() error { return protojson.Unmarshal(protoText, new(corev1.Pod)) }},
		{"protobuf", func() error { return codec.DecodeProtobuf(body, new(corev1.Pod)) }},
		{"clone", func() error {
			proto.Clone(pod)
			return nil
		}},
	}
}

// BenchmarkEncode writes one pod with every codec.
func BenchmarkEncode(b *testing.B) { each(b, encoders(b)) }

// BenchmarkDecode reads one pod with every codec.
func BenchmarkDecode(b *testing.B) { each(b, decoders(b)) }

func each(b *testing.B, contenders []contender) {
	for _, c := range contenders {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(b, c.run())
			}
		})
	}
}

// BenchmarkRatio runs the codecs in turns, so that a busy machine slows all of them alike, and prints how many
// times as long as this package the others take.
func BenchmarkRatio(b *testing.B) {
	b.Run("encode", func(b *testing.B) { ratio(b, encoders(b)) })
	b.Run("decode", func(b *testing.B) { ratio(b, decoders(b)) })
}

func ratio(b *testing.B, contenders []contender) {
	const turn = 20
	taken := make([]time.Duration, len(contenders))
	for b.Loop() {
		for i, c := range contenders {
			start := time.Now()
			for range turn {
				must(b, c.run())
			}
			taken[i] += time.Since(start)
		}
	}
	ours := float64(taken[0])
	b.ReportMetric(ours/turn/float64(b.N), "monoplane-ns")
	for i, c := range contenders[1:] {
		b.ReportMetric(float64(taken[i+1])/ours, "x-"+c.name)
	}
	b.ReportMetric(0, "ns/op")
}
