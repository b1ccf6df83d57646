package json_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	k8smeta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monoplane.dev/codec/json"
)

// decode reads text with read and returns the error.
func decode(text string, read func(d *json.Decoder)) error {
	d := json.NewDecoder([]byte(text))
	read(d)
	d.End()
	return d.Err()
}

// spec: OBJ-3
func TestIntegersArePlainDigits(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "-0": "0", "2147483647": "2147483647", "-2147483648": "-2147483648", "null": "0", " 7 ": "7",
		"2147483648": "expected an integer of 32 bits, found the number 2147483648",
		`"5"`:        "expected an integer, found a string",
		"5.0":        "expected an integer, found the number 5.0",
		"1e2":        "expected an integer, found the number 1e2",
		"true":       "expected an integer, found a boolean",
		"[1]":        "expected an integer, found an array",
		"{}":         "expected an integer, found an object",
		"01":         "line 1, column 2: unexpected character '1' after the document",
		"-":          "line 1, column 1: unexpected character '-', expected a value",
		"":           "line 1, column 1: unexpected end of JSON input, expected a value",
		"\n\n 5x":    "line 3, column 3: unexpected character 'x' after the document",
	} {
		var v int32
		var got string
		if err := decode(text, func(d *json.Decoder) { d.Int32(&v) }); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprint(v)
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]int64{
		"9223372036854775807": 1<<63 - 1, "-9223372036854775808": -1 << 63, "999999999999999999": 999999999999999999,
		"1000000000000000000": 1e18,
	} {
		var v int64
		if err := decode(text, func(d *json.Decoder) { d.Int64(&v) }); err != nil || v != want {
			t.Errorf("%s: got %d, %v", text, v, err)
		}
	}
	var v int64
	if err := decode("9223372036854775808", func(d *json.Decoder) { d.Int64(&v) }); err == nil {
		t.Error("an overflow was not noticed")
	}
}

// Times are what the Kubernetes types make of them.
func TestTimesAreThoseOfKubernetes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 20000 {
		at := time.Unix(rng.Int64N(253402300800+62135596800)-62135596800, rng.Int64N(1e9))
		want, err := k8smeta.NewTime(at).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		seconds, nanos := at.Unix(), int32(at.Nanosecond())
		if got := json.AppendTime(nil, seconds, nanos); string(got) != string(want) {
			t.Fatalf("%v: got %s, want %s", at, got, want)
		}
		var s int64
		var n int32
		if err := decode(string(want), func(d *json.Decoder) { d.Time(&s, &n) }); err != nil || s != seconds || n != 0 {
			t.Fatalf("%s: got %d.%d, %v", want, s, n, err)
		}
		if want, err = k8smeta.NewMicroTime(at).MarshalJSON(); err != nil {
			t.Fatal(err)
		}
		if got := json.AppendMicroTime(nil, seconds, nanos); string(got) != string(want) {
			t.Fatalf("%v: got %s, want %s", at, got, want)
		}
		if err := decode(string(want), func(d *json.Decoder) { d.MicroTime(&s, &n) }); err != nil || s != seconds ||
			n != nanos/1000*1000 {
			t.Fatalf("%s: got %d.%d, %v", want, s, n, err)
		}
	}
}

func TestTimesFromText(t *testing.T) {
	texts := []string{
		"2026-03-04T05:06:07Z", "2026-03-04T05:06:07.5Z", "2026-03-04T05:06:07.123456Z", "2026-03-04T05:06:07+02:00",
		"2026-03-04T05:06:07.123456-11:30",
		"2026-02-29T00:00:00Z", "2024-02-29T00:00:00Z", "2000-02-29T23:59:59Z", "1900-02-29T00:00:00Z",
		"2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z",
		"2026-01-32T00:00:00Z", "2026-01-00T00:00:00Z", "2026-04-31T00:00:00Z", "2026-01-01T24:00:00Z",
		"2026-01-01T00:60:00Z", "2026-01-01T00:00:60Z",
		"2026-03-04 05:06:07Z", "2026-03-04T05:06:07", "2026-03-04T05:06:07z", "", "x", "2026-3-4T5:6:7Z",
		"0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z",
		"2026-03-04T05:06:07.1234567Z", "2026-03-04T05:06:07.12345Z", "2O26-03-04T05:06:07Z", "2026-03-04T05:06:07.12345xZ",
		"2026-03-04T05:06:0:Z",
	}
	for _, text := range texts {
		text = `"` + text + `"`
		var k k8smeta.Time
		wantErr := k.UnmarshalJSON([]byte(text))
		var s int64
		var n int32
		err := decode(text, func(d *json.Decoder) { d.Time(&s, &n) })
		if (err != nil) != (wantErr != nil) || (err == nil && !json.ZeroTime(s, n) && s != k.Unix()) {
			t.Errorf("%s: got %d, %v; Kubernetes has %v, %v", text, s, err, k, wantErr)
		}
		var m k8smeta.MicroTime
		wantErr = m.UnmarshalJSON([]byte(text))
		err = decode(text, func(d *json.Decoder) { d.MicroTime(&s, &n) })
		if (err != nil) != (wantErr != nil) || (err == nil && !json.ZeroTime(s, n) &&
			(s != m.Unix() || int(n) != m.Nanosecond())) {
			t.Errorf("%s: got %d.%d, %v; Kubernetes has %v, %v", text, s, n, err, m, wantErr)
		}
	}
}

func TestTimesThatAreNoTime(t *testing.T) {
	for _, text := range []string{"null", `"0001-01-01T00:00:00Z"`} {
		s, n := int64(5), int32(5)
		if err := decode(text, func(d *json.Decoder) { d.Time(&s, &n) }); err != nil || !json.ZeroTime(s, n) {
			t.Errorf("%s: got %d.%d, %v", text, s, n, err)
		}
	}
	// Protobuf has no room for the epoch itself, and still it survives.
	var s int64
	var n int32
	const epoch = `"1970-01-01T00:00:00Z"`
	if err := decode(epoch, func(d *json.Decoder) { d.Time(&s, &n) }); err != nil ||
		string(json.AppendTime(nil, s, n)) != epoch {
		t.Errorf("the epoch became %d.%d: %v", s, n, err)
	}
	for _, seconds := range []int64{-1 << 63, 1<<63 - 1, 1 << 40, -1 << 40} {
		b := json.AppendMicroTime(nil, seconds, -1<<31)
		if err := decode(string(b), func(d *json.Decoder) { d.MicroTime(&s, &n) }); err != nil {
			t.Errorf("%d seconds become %s: %v", seconds, b, err)
		}
	}
}

// Quantities are what resource.Quantity makes of them.
func TestQuantitiesAreThoseOfKubernetes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	suffixes := []string{"", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "n", "u", "e3", "E-2",
		"K", "mi", "x", " "}
	for range 20000 {
		text := fmt.Sprint(rng.Uint64() >> rng.IntN(64))
		if rng.IntN(4) == 0 {
			text += "000"
		}
		if rng.IntN(4) == 0 {
			text += fmt.Sprint(".", rng.IntN(2000))
		}
		if rng.IntN(8) == 0 {
			text = string("+-0"[rng.IntN(3)]) + text
		}
		checkQuantity(t, text+suffixes[rng.IntN(len(suffixes))])
	}
	for _, text := range []string{"", "0", "00", "1", "1000", "1000m", "1024Mi", "8Gi", "999999999G", "999999999Gi",
		"1000000000Gi", " 5 ", "."} {
		checkQuantity(t, text)
	}
}

func checkQuantity(t *testing.T, text string) {
	t.Helper()
	q, wantErr := resource.ParseQuantity(text)
	want := `"` + q.String() + `"`
	if wantErr == nil {
		if got := string(json.AppendQuantity(nil, text)); got != want {
			t.Fatalf("%s is written %s, want %s", text, got, want)
		}
	}
	var k resource.Quantity
	wantErr = k.UnmarshalJSON([]byte(`"` + text + `"`))
	var got string
	err := decode(`"`+text+`"`, func(d *json.Decoder) { d.Quantity(&got) })
	if (err != nil) != (wantErr != nil) || (err == nil && got != k.String()) {
		t.Fatalf("%q is read %q, %v; Kubernetes reads %q, %v", text, got, err, k.String(), wantErr)
	}
}

func TestQuantitiesOfOtherForms(t *testing.T) {
	for text, want := range map[string]string{
		"1": "1", "1000": "1k", "-5": "-5", "1.5": "1500m", "1e3": "1e3", "null": "", `"2Gi"`: "2Gi",
		"1e100": "error", "1e-100": "error", "1e99": "1e99", "10000000000000000000001e99999999": "error", `"` +
			strings.Repeat("7", 65) + `"`: "error",
		"true": "error", "{}": "error", `"1\u0030"`: "error", `""`: "error", `"x"`: "error",
	} {
		var got string
		if err := decode(text, func(d *json.Decoder) { d.Quantity(&got) }); err != nil {
			if got = "error"; !strings.Contains(err.Error(), "expected a string with a quantity") {
				t.Errorf("%s: %v", text, err)
			}
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	got := string(json.AppendQuantity(nil, "10000000000000000000001e99999999"))
	if got != `"10000000000000000000001e99999999"` {
		t.Errorf("got %s", got)
	}
	if got := string(json.AppendQuantity(nil, "<nonsense>")); got != `"\u003cnonsense\u003e"` {
		t.Errorf("got %s", got)
	}
}

// Null is no raw JSON, as in Kubernetes: it is nothing in protobuf, too.
func TestRawNullIsNothing(t *testing.T) {
	for text, want := range map[string]string{"null": "", " null ": "", "{}": "{}", `"null"`: `"null"`,
		"[null]": "[null]"} {
		raw := []byte("old")
		if err := decode(text, func(d *json.Decoder) { d.Raw(&raw) }); err != nil || string(raw) != want {
			t.Errorf("%s: %q, %v", text, raw, err)
		}
	}
}
