package codec_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

// sorted returns JSON with the fields of all objects sorted, and strings and numbers as they were written, so
// that documents can be compared byte by byte apart from the order of fields.
func sorted(t *testing.T, text []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := writeSorted(&b, text); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return b.String()
}

func writeSorted(b *bytes.Buffer, text []byte) error {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return fmt.Errorf("nothing")
	}
	switch text[0] {
	case '{':
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(text, &fields); err != nil {
			return err
		}
		names := make([]string, 0, len(fields))
		for name := range fields {
			names = append(names, name)
		}
		slices.Sort(names)
		b.WriteString("{\n")
		for _, name := range names {
			fmt.Fprintf(b, "%q: ", name)
			if err := writeSorted(b, fields[name]); err != nil {
				return err
			}
			b.WriteString(",\n")
		}
		b.WriteString("}")
	case '[':
		var elements []json.RawMessage
		if err := json.Unmarshal(text, &elements); err != nil {
			return err
		}
		b.WriteString("[\n")
		for _, e := range elements {
			if err := writeSorted(b, e); err != nil {
				return err
			}
			b.WriteString(",\n")
		}
		b.WriteString("]")
	default:
		b.Write(text)
	}
	return nil
}
