package json_test

import (
	"bytes"
	gojson "encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"monoplane.dev/codec/json"
)

var stringSeeds = []string{
	"", "plain", "exactly8", "a\"b", `back\slash`, "<tag> & more", "\x00\x01\b\f\n\r\t\x1f\x7f", "über",
	"日本語 \u2028\u2029", "😀", "\xff", "ok\xc3",
	"\xed\xa0\x80", strings.Repeat("long ", 100), "1234567\"", "12345678\"", "1234567\x80", "\\u2028",
}

func decodeString(text []byte) (string, error) {
	var s string
	d := json.NewDecoder(text)
	d.String(&s)
	d.End()
	return s, d.Err()
}

// Strings are written byte for byte as encoding/json writes them, and read back as it reads them.
func FuzzString(f *testing.F) {
	for _, s := range stringSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := gojson.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := json.AppendString([]byte("before"), s); string(got) != "before"+string(want) {
			t.Fatalf("%q is written %s, want %s", s, got, want)
		}
		back, err := decodeString(want)
		if err != nil || back != strings.ToValidUTF8(s, "\ufffd") && utf8.ValidString(s) {
			t.Fatalf("%s is read %q, %v", want, back, err)
		}
		// As the text of a string literal, whatever it is.
		literal := []byte(`"` + s + `"`)
		var wanted string
		wantErr := gojson.Unmarshal(literal, &wanted)
		got, err := decodeString(literal)
		if (err != nil) != (wantErr != nil) || (err == nil && got != wanted) {
			t.Fatalf("%s is read %q, %v; encoding/json reads %q, %v", literal, got, err, wanted, wantErr)
		}
	})
}

// Raw JSON is written as encoding/json writes a json.RawMessage, and what is not JSON as null.
func FuzzRaw(f *testing.F) {
	for _, s := range []string{
		"", "{}", ` { "a" : [ 1 , "x y" ] } `, `"<&>` + "\u2028" + `"`, `"\"<\\"`, "[", "nul", "1 2", "-0.5e+10", `"\ud800"`,
		"[[[[]]]]", "\"\xff\"",
		`{"a":1,"a":2}`, "01", "1.", "1e", "-", "\u00a0", `"` + "\x01" + `"`, "truefalse",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want := []byte("null")
		if gojson.Valid(text) {
			var err error
			if want, err = gojson.Marshal(gojson.RawMessage(text)); err != nil {
				t.Fatal(err)
			}
		}
		if got := json.AppendRaw(nil, text); !bytes.Equal(got, want) && bytes.Count(text, []byte("[")) < json.MaxDepth {
			t.Fatalf("%q becomes %s, want %s", text, got, want)
		}
		var raw []byte
		d := json.NewDecoder(text)
		d.Raw(&raw)
		d.End()
		if (d.Err() == nil) != gojson.Valid(text) && bytes.Count(text, []byte("[")) < json.MaxDepth {
			t.Fatalf("%q: %v", text, d.Err())
		}
	})
}
