package json

import "bytes"

// AppendIntOrString appends an integer, or a string when kind is 1.
func AppendIntOrString(b []byte, kind int64, i int32, s string) []byte {
	if kind == 1 {
		return AppendString(b, s)
	}
	return AppendInt(b, int64(i))
}

// IntOrString reads an integer or a string. Kind is 1 for a string.
func (d *Decoder) IntOrString(kind *int64, i *int32, s *string) {
	*kind, *i, *s = 0, 0, ""
	switch c := d.peek(); {
	case c == '"':
		*kind = 1
		d.String(s)
	case c == '-' || (c >= '0' && c <= '9'):
		d.Int32(i)
	default:
		if !d.Null() {
			d.mismatch("an integer or a string")
		}
	}
}

// Raw reads any value into *p as text; null makes it nil.
func (d *Decoder) Raw(p *[]byte) {
	if d.Null() {
		*p = nil
		return
	}
	d.peek()
	at := d.pos
	d.skip()
	if !d.failed {
		*p = bytes.Clone(d.data[at:d.pos])
	}
}

// AppendRaw appends JSON text without insignificant white space and with <, > and & escaped. No text, and
// text that is not JSON, becomes null.
func AppendRaw(b, text []byte) []byte {
	if len(text) == 0 {
		return append(b, "null"...)
	}
	d := NewDecoder(text)
	d.skip()
	if d.End(); d.failed {
		return append(b, "null"...)
	}
	quoted := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && quoted:
			b = append(b, c)
			i++
			b = append(b, text[i])
		case c == '<' || c == '>' || c == '&':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
		case !quoted && (c == ' ' || c == '\n' || c == '\t' || c == '\r'):
		case c == 0xe2 && i+2 < len(text) && text[i+1] == 0x80 && text[i+2]&^1 == 0xa8:
			b = append(b, '\\', 'u', '2', '0', '2', hex[text[i+2]&0xf])
			i += 2
		default:
			if c == '"' {
				quoted = !quoted
			}
			b = append(b, c)
		}
	}
	return b
}
