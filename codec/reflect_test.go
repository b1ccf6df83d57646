package codec_test

import (
	"bytes"
	"encoding/base64"
	gojson "encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"k8s.io/apimachinery/pkg/api/resource"

	"monoplane.dev/codec/json"

	_ "monoplane.dev/api/node/v1/rpc"
	optionsv1 "monoplane.dev/api/options/v1"
)

// reflective is the codec written once more, without generated code and without a thought for speed: it reads
// the same options at run time. The generated codec must agree with it on every message, those included that
// Kubernetes does not have.
type reflective struct{ bytes.Buffer }

func (w *reflective) message(m protoreflect.Message) {
	if scalarOf(m.Descriptor()) != optionsv1.Scalar_SCALAR_UNSPECIFIED {
		w.scalar(m)
		return
	}
	w.WriteByte('{')
	w.fields(m, new(bool))
	w.WriteByte('}')
}

func (w *reflective) fields(m protoreflect.Message, comma *bool) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if boolOption(f, optionsv1.E_Inline) {
			w.fields(m.Get(f).Message(), comma)
			continue
		}
		always := boolOption(f, optionsv1.E_Always)
		set := m.Has(f)
		if set && f.Message() != nil && !f.IsList() && !f.IsMap() && isZeroTime(m.Get(f).Message()) {
			set = false
		}
		if !set && !always {
			continue
		}
		if *comma {
			w.WriteByte(',')
		}
		*comma = true
		fmt.Fprintf(w, "%q:", f.JSONName())
		switch {
		case set:
			w.value(f, m.Get(f))
		case f.IsList() && f.Name() == "items" && isKind(m.Descriptor()):
			w.WriteString("[]")
		case f.IsList(), f.IsMap(), f.HasOptionalKeyword(), f.Kind() == protoreflect.BytesKind:
			w.WriteString("null") // encoding/json's word for none
		default:
			w.value(f, m.Get(f)) // the zero value
		}
	}
}

func (w *reflective) value(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case f.IsList():
		w.WriteByte('[')
		for i := range v.List().Len() {
			if i > 0 {
				w.WriteByte(',')
			}
			w.single(f, v.List().Get(i))
		}
		w.WriteByte(']')
	case f.IsMap():
		var keys []string
		v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			keys = append(keys, k.String())
			return true
		})
		slices.Sort(keys)
		w.WriteByte('{')
		for i, key := range keys {
			if i > 0 {
				w.WriteByte(',')
			}
			w.text(key)
			w.WriteByte(':')
			w.single(f.MapValue(), v.Map().Get(protoreflect.ValueOfString(key).MapKey()))
		}
		w.WriteByte('}')
	default:
		w.single(f, v)
	}
}

func (w *reflective) single(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.MessageKind:
		if f.IsList() && isKind(f.Message()) && !isKind(f.ContainingMessage()) {
			w.typed(v.Message())
			return
		}
		w.message(v.Message())
	case protoreflect.StringKind:
		w.text(v.String())
	case protoreflect.BytesKind:
		w.text(base64.StdEncoding.EncodeToString(v.Bytes()))
	default:
		fmt.Fprint(w, v.Interface())
	}
}

// typed writes an object with its kind.
func (w *reflective) typed(m protoreflect.Message) {
	apiVersion, kind := m.Interface().(json.Object).TypeMeta()
	fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q`, kind, apiVersion)
	comma := true
	w.fields(m, &comma)
	w.WriteByte('}')
}

func (w *reflective) text(s string) {
	b, err := gojson.Marshal(s)
	if err != nil {
		panic(err)
	}
	w.Write(b)
}

func (w *reflective) scalar(m protoreflect.Message) {
	get := func(name protoreflect.Name) protoreflect.Value { return m.Get(m.Descriptor().Fields().ByName(name)) }
	scalar := scalarOf(m.Descriptor())
	switch scalar {
	case optionsv1.Scalar_TIME, optionsv1.Scalar_MICRO_TIME:
		layout := time.RFC3339
		if scalar == optionsv1.Scalar_MICRO_TIME {
			layout = "2006-01-02T15:04:05.000000Z07:00"
		}
		if isZeroTime(m) {
			w.WriteString("null")
			return
		}
		w.text(time.Unix(get("seconds").Int(), get("nanos").Int()).UTC().Format(layout))
	case optionsv1.Scalar_DURATION:
		w.text(time.Duration(get("duration").Int()).String())
	case optionsv1.Scalar_QUANTITY:
		q, err := resource.ParseQuantity(get("string").String())
		if err != nil {
			q = resource.Quantity{}
		}
		w.text(q.String())
	case optionsv1.Scalar_INT_OR_STRING:
		if get("type").Int() == 1 {
			w.text(get("strVal").String())
		} else {
			w.WriteString(strconv.FormatInt(get("intVal").Int(), 10))
		}
	case optionsv1.Scalar_STRINGS:
		list := get("items").List()
		if list.Len() == 0 {
			w.WriteString("null")
			return
		}
		w.WriteByte('[')
		for i := range list.Len() {
			if i > 0 {
				w.WriteByte(',')
			}
			w.text(list.Get(i).String())
		}
		w.WriteByte(']')
	default:
		raw := m.Get(m.Descriptor().Fields().ByNumber(m.Descriptor().Fields().Get(0).Number())).Bytes()
		if len(raw) == 0 {
			raw = []byte("null")
		}
		b, err := gojson.Marshal(gojson.RawMessage(raw))
		if err != nil {
			panic(err)
		}
		w.Write(b)
	}
}

func isZeroTime(m protoreflect.Message) bool {
	switch scalarOf(m.Descriptor()) {
	case optionsv1.Scalar_TIME, optionsv1.Scalar_MICRO_TIME:
		fields := m.Descriptor().Fields()
		return json.ZeroTime(m.Get(fields.ByName("seconds")).Int(), int32(m.Get(fields.ByName("nanos")).Int()))
	}
	return false
}

// spec: OBJ-15
func TestGeneratedCodecAgreesWithReflection(t *testing.T) {
	rng := newRand(t)
	count := 0
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		name := string(mt.Descriptor().FullName())
		if !strings.HasPrefix(name, "monoplane.") || strings.HasPrefix(name, "monoplane.options.") {
			return true
		}
		if mt.Descriptor().ParentFile().Services().Len() > 0 {
			return true // requests and answers of services are never JSON
		}
		count++
		for range 20 {
			m := mt.New()
			fillMessage(rng, m, 0)
			var want reflective
			want.message(m)
			got := m.Interface().(json.Value).AppendJSON(nil)
			if !bytes.Equal(want.Bytes(), got) {
				t.Errorf("%s:\nreflective %s\ngenerated  %s", name, want.Bytes(), got)
				return true
			}
			back := mt.New().Interface().(json.Value)
			if strings.HasPrefix(string(got), "{") {
				d := json.NewDecoder(got)
				back.DecodeJSON(d)
				d.End()
				if strict, err := d.Strict(), d.Err(); err != nil || len(strict) > 0 {
					t.Errorf("%s: %v %v in %s", name, err, strict, got)
				} else if b := back.AppendJSON(nil); !bytes.Equal(got, b) {
					t.Errorf("%s: changed on the way:\n%s\n%s", name, got, b)
				}
			}
		}
		return true
	})
	if count < 200 {
		t.Errorf("only %d messages were compared", count)
	}
}

// fillMessage gives a message random contents.
func fillMessage(rng *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	switch scalarOf(m.Descriptor()) {
	case optionsv1.Scalar_TIME, optionsv1.Scalar_MICRO_TIME:
		m.Set(fields.ByName("seconds"), protoreflect.ValueOfInt64(rng.Int64N(1<<33)))
		return
	case optionsv1.Scalar_QUANTITY:
		m.Set(fields.ByName("string"), protoreflect.ValueOfString(pick(rng, quantities)))
		return
	case optionsv1.Scalar_FIELDS_V1, optionsv1.Scalar_RAW_EXTENSION:
		m.Set(fields.Get(0), protoreflect.ValueOfBytes([]byte(pick(rng, rawValues))))
		return
	case optionsv1.Scalar_INT_OR_STRING:
		m.Set(fields.ByName("type"), protoreflect.ValueOfInt64(int64(rng.IntN(2))))
		m.Set(fields.ByName("intVal"), protoreflect.ValueOfInt32(rng.Int32()))
		m.Set(fields.ByName("strVal"), protoreflect.ValueOfString(pick(rng, words)))
		return
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		if depth > 8 || rng.IntN(3) > 0 {
			continue
		}
		switch {
		case f.IsList():
			list := m.Mutable(f).List()
			for range 1 + rng.IntN(3) {
				list.Append(randomValue(rng, f, list.NewElement(), depth))
			}
		case f.IsMap():
			entries := m.Mutable(f).Map()
			for range 1 + rng.IntN(3) {
				entries.Set(protoreflect.ValueOfString(pick(rng, words)).MapKey(),
					randomValue(rng, f.MapValue(), entries.NewValue(), depth))
			}
		default:
			m.Set(f, randomValue(rng, f, m.NewField(f), depth))
		}
	}
}

func randomValue(
	rng *rand.Rand, f protoreflect.FieldDescriptor, empty protoreflect.Value, depth int,
) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.MessageKind:
		fillMessage(rng, empty.Message(), depth+1)
		return empty
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(pick(rng, words))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(pick(rng, words)))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rng.IntN(2) == 0)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(rng.Int32())
	default:
		return protoreflect.ValueOfInt64(int64(rng.Uint64()))
	}
}
