package codec_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/codec"
)

// FuzzDecodeObject decodes arbitrary text as any kind: no panic, and agreement with Kubernetes on what is
// refused, reported and read.
//
// spec: OBJ-3
func FuzzDecodeObject(f *testing.F) {
	all := pairs(f)
	f.Add(uint8(0), podJSON(f))
	rng := rand.New(rand.NewPCG(1, 2))
	for i, p := range all {
		text, err := json.Marshal(p.random(rng))
		must(f, err)
		if len(text) < 2000 { // the engine is slow with long inputs
			f.Add(uint8(i), text)
			f.Add(uint8(i), mutate(rng, text))
		}
	}
	for _, text := range []string{"", "null", "{", `{"kind":"Pod","kind":1}`, `{"items":[null,{}]}`,
		"{\"\xff\":1,\"\xfe\":1}"} {
		f.Add(uint8(1), []byte(text))
	}
	f.Fuzz(func(t *testing.T, i uint8, text []byte) {
		compareDecoding(t, all[int(i)%len(all)], text)
	})
}

// FuzzDecodeProtobuf decodes arbitrary bytes as any kind: no panic, and what is taken survives another trip
// through protobuf and has JSON that is JSON.
func FuzzDecodeProtobuf(f *testing.F) {
	all := pairs(f)
	rng := rand.New(rand.NewPCG(3, 4))
	for i, p := range all {
		body, err := p.random(rng).Marshal()
		must(f, err)
		f.Add(uint8(i), codec.AppendProtobufBody(nil, p.ours(), body))
	}
	f.Add(uint8(0), []byte("k8s\x00\x0a\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, i uint8, data []byte) {
		p := all[int(i)%len(all)]
		o := p.ours()
		if codec.DecodeProtobuf(data, o) != nil {
			return
		}
		b, err := codec.AppendProtobuf(nil, o)
		must(t, err)
		again := p.ours()
		must(t, codec.DecodeProtobuf(b, again))
		if !proto.Equal(o, again) {
			t.Fatalf("changed on the way:\n%v\n%v", o, again)
		}
		text := codec.AppendObject(nil, o)
		if !json.Valid(text) {
			t.Fatalf("not JSON: %s", text)
		}
		fromText := p.ours()
		if strict, err := codec.DecodeObject(text, fromText); len(strict) > 0 {
			t.Fatalf("own JSON is reported: %v, %v in %s", strict, err, text)
		}
	})
}
