package codec_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/codec"
	"monoplane.dev/object"
)

// FuzzDecodeObject decodes arbitrary text as any kind: no panic, and agreement with Kubernetes on what is
// refused, reported and read.
//
// spec: OBJ-3
func FuzzDecodeObject(f *testing.F) {
	all := pairs()
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
	for _, text := range []string{"", "null", "{", `{"kind":"Pod","kind":1}`, `{"items":[null,{}]}`, "{\"\xff\":1,\"\xfe\":1}"} {
		f.Add(uint8(1), []byte(text))
	}
	f.Fuzz(func(t *testing.T, i uint8, text []byte) {
		compareDecoding(t, all[int(i)%len(all)], text)
	})
}

// FuzzDecodeProtobuf decodes arbitrary bytes as any kind: no panic, and what is taken survives another trip
// through protobuf and has JSON that is JSON.
func FuzzDecodeProtobuf(f *testing.F) {
	all := pairs()
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

// FuzzWatchFrame reads arbitrary bytes as a stream of protobuf watch events.
func FuzzWatchFrame(f *testing.F) {
	b, err := codec.AppendEventFrame(nil, object.Added, []byte("k8s\x00"))
	must(f, err)
	f.Add(b)
	f.Add(append(b[:len(b):len(b)], b...))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		var buf []byte
		for {
			var err error
			if buf, err = codec.ReadFrame(r, buf, 1<<16); err != nil {
				return
			}
			event, obj, err := codec.DecodeEventFrame(buf)
			if err != nil {
				continue
			}
			frame, err := codec.AppendEventFrame(nil, event, obj)
			must(t, err)
			again, body, err := codec.DecodeEventFrame(frame[4:])
			must(t, err)
			if again != event || !bytes.Equal(body, obj) {
				t.Fatalf("changed on the way: %q %q", event, obj)
			}
		}
	})
}
