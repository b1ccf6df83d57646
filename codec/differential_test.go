package codec_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"k8s.io/apimachinery/pkg/api/equality"
	kjson "sigs.k8s.io/json"

	"monoplane.dev/codec"
)

// rounds is how many random objects of each kind the differential tests use.
const rounds = 15

// newRand returns a source of randomness and says its seed.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// eachRandom runs check on random objects of every kind.
func eachRandom(t *testing.T, check func(t *testing.T, p pair, rng *rand.Rand, o protobufObject)) {
	for _, p := range pairs(t) {
		t.Run(p.name, func(t *testing.T) {
			rng := newRand(t)
			for range rounds {
				check(t, p, rng, p.random(rng))
				if t.Failed() {
					return
				}
			}
		})
	}
}

// fromProtobuf reads the protobuf form that Kubernetes makes of o.
func fromProtobuf(t *testing.T, p pair, o protobufObject) codec.Typed {
	t.Helper()
	b, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	ours := p.ours()
	if err := proto.Unmarshal(b, ours); err != nil {
		t.Fatal(err)
	}
	if unknown := ours.ProtoReflect().GetUnknown(); len(unknown) > 0 {
		t.Errorf("unknown protobuf fields %x", unknown)
	}
	return ours
}

// spec: OBJ-15
func TestProtobufIsThatOfKubernetes(t *testing.T) {
	eachRandom(t, func(t *testing.T, p pair, _ *rand.Rand, o protobufObject) {
		b, err := proto.Marshal(fromProtobuf(t, p, o))
		if err != nil {
			t.Fatal(err)
		}
		back := p.k8s()
		if err := back.Unmarshal(b); err != nil {
			t.Fatal(err)
		}
		p.setTypeMeta(back)
		if !equality.Semantic.DeepEqual(o, back) {
			t.Errorf("changed on the way through protobuf:\n%s", cmp.Diff(kubernetesJSON(t, o), kubernetesJSON(t, back)))
		}
	})
}

func kubernetesJSON(t *testing.T, o protobufObject) string {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return sorted(t, b)
}

// spec: OBJ-15
func TestEncodedJSONIsThatOfKubernetes(t *testing.T) {
	eachRandom(t, func(t *testing.T, p pair, _ *rand.Rand, o protobufObject) {
		ours := fromProtobuf(t, p, o)
		b := codec.AppendObject(nil, ours)
		if diff := cmp.Diff(kubernetesJSON(t, o), sorted(t, b)); diff != "" {
			t.Fatalf("Kubernetes (-), Monoplane (+):\n%s", diff)
		}
		back := p.k8s()
		strict, err := kjson.UnmarshalStrict(b, back)
		if err != nil || len(strict) > 0 {
			t.Fatalf("Kubernetes refuses our JSON: %v %v", err, strict)
		}
		if diff := cmp.Diff(kubernetesJSON(t, o), kubernetesJSON(t, back)); diff != "" {
			t.Errorf("changed on the way through JSON:\n%s", diff)
		}
	})
}

// spec: OBJ-15
func TestDecodedJSONIsWhatKubernetesWrote(t *testing.T) {
	eachRandom(t, func(t *testing.T, p pair, _ *rand.Rand, o protobufObject) {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		ours := p.ours()
		strict, err := codec.DecodeObject(text, ours)
		if err != nil || len(strict) > 0 {
			t.Fatalf("%v %v in %s", err, strict, text)
		}
		want := codec.AppendObject(nil, fromProtobuf(t, p, o))
		got := codec.AppendObject(nil, ours)
		if diff := cmp.Diff(sorted(t, want), sorted(t, got)); diff != "" {
			t.Fatalf("by protobuf (-), by JSON (+):\n%s", diff)
		}
		again := p.ours()
		if strict, err := codec.DecodeObject(got, again); err != nil || len(strict) > 0 || !proto.Equal(ours, again) {
			t.Fatalf("%v %v: decode(encode(x)) is not x:\n%s", err, strict, cmp.Diff(ours, again, protocmp.Transform()))
		}
	})
}
