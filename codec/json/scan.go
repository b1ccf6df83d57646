package json

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// peek passes over white space and returns the next byte, 0 at the end.
func (d *Decoder) peek() byte {
	for d.pos < len(d.data) {
		c := d.data[d.pos]
		if c > ' ' || (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
			return c
		}
		d.pos++
	}
	return 0
}

func (d *Decoder) literal(word string) bool {
	if len(d.data)-d.pos < len(word) || string(d.data[d.pos:d.pos+len(word)]) != word {
		d.unexpected("a value")
		return false
	}
	d.pos += len(word)
	return true
}

// Masks to look at eight bytes at once.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks, in the high bit of each byte, the bytes of v that a string cannot hold as they are or that
// need a look: quotes, backslashes, control characters and everything outside ASCII.
func special(v uint64) uint64 {
	quote := v ^ (ones * '"')
	slash := v ^ (ones * '\\')
	return ((quote-ones)&^quote | (slash-ones)&^slash | (v - ones*0x20) | v) & highs
}

// plain returns the length of the longest prefix of s without special bytes.
func plain(s []byte) int {
	i := 0
	for ; len(s)-i >= 8; i += 8 {
		if m := special(binary.LittleEndian.Uint64(s[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= 0x80 || c == '"' || c == '\\' {
			break
		}
	}
	return i
}

// scanString reads the string that comes next and returns its text, valid until the next call. The caller
// has seen the opening quote.
func (d *Decoder) scanString() ([]byte, bool) {
	start := d.pos + 1
	end := start
	for ; len(d.data)-end >= 8; end += 8 {
		if m := special(binary.LittleEndian.Uint64(d.data[end:])); m != 0 {
			end += bits.TrailingZeros64(m) / 8
			if d.data[end] != '"' {
				return d.scanSlow(start, end)
			}
			d.pos = end + 1
			return d.data[start:end], true
		}
	}
	end += plain(d.data[end:])
	if end < len(d.data) && d.data[end] == '"' {
		d.pos = end + 1
		return d.data[start:end], true
	}
	return d.scanSlow(start, end)
}

// scanSlow reads a string that begins at start and has no special bytes before i.
func (d *Decoder) scanSlow(start, i int) ([]byte, bool) {
	b := append(d.buf[:0], d.data[start:i]...)
	for i < len(d.data) {
		switch c := d.data[i]; {
		case c == '"':
			d.buf = b
			d.pos = i + 1
			return b, true
		case c == '\\':
			var n int
			if b, n = unescape(b, d.data[i:]); n == 0 {
				d.pos = i
				d.syntax("invalid escape in a string")
				return nil, false
			}
			i += n
		case c < 0x20:
			d.pos = i
			d.syntax("control character %#02x in a string", c)
			return nil, false
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRune(d.data[i:])
			b = utf8.AppendRune(b, r) // U+FFFD for bytes that are not UTF-8
			i += n
		default:
			n := plain(d.data[i:])
			b = append(b, d.data[i:i+n]...)
			i += n
		}
	}
	d.pos = len(d.data)
	d.syntax("unexpected end of JSON input in a string")
	return nil, false
}

// unescape appends what the escape at the start of s stands for and returns the escape's length, 0 when it
// is invalid. Halves of surrogate pairs become U+FFFD.
func unescape(b, s []byte) ([]byte, int) {
	if len(s) < 2 {
		return b, 0
	}
	switch s[1] {
	case '"', '\\', '/':
		return append(b, s[1]), 2
	case 'b':
		return append(b, '\b'), 2
	case 'f':
		return append(b, '\f'), 2
	case 'n':
		return append(b, '\n'), 2
	case 'r':
		return append(b, '\r'), 2
	case 't':
		return append(b, '\t'), 2
	case 'u':
		r := hex4(s)
		if r < 0 {
			return b, 0
		}
		if utf16.IsSurrogate(r) {
			if both := utf16.DecodeRune(r, hex4(s[6:])); both != utf8.RuneError {
				return utf8.AppendRune(b, both), 12
			}
			r = utf8.RuneError
		}
		return utf8.AppendRune(b, r), 6
	}
	return b, 0
}

// hex4 returns the code unit of the \uXXXX at the start of s, -1 when there is none.
func hex4(s []byte) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range s[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// unquoted returns the text of a quoted string that was scanned before.
func unquoted(quoted []byte) string {
	d := Decoder{data: quoted}
	s, _ := d.scanString()
	return string(s)
}

// number reads a number and returns its text, nil when what comes next is none. Whole says that it has
// neither fraction nor exponent.
func (d *Decoder) number() (text []byte, whole bool) {
	s := d.data[d.pos:]
	i := 0
	if i < len(s) && s[i] == '-' {
		i++
	}
	switch {
	case i < len(s) && s[i] == '0':
		i++
	case i < len(s) && s[i] >= '1' && s[i] <= '9':
		i = digits(s, i)
	default:
		return nil, false
	}
	whole = true
	if i < len(s) && s[i] == '.' {
		whole = false
		from := i + 1
		if i = digits(s, from); i == from {
			return nil, false
		}
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		whole = false
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		from := i
		if i = digits(s, from); i == from {
			return nil, false
		}
	}
	d.pos += i
	return s[:i], whole
}

func digits(s []byte, i int) int {
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return i
}

// skip passes over one value, checking its syntax.
func (d *Decoder) skip() {
	switch d.peek() {
	case '{':
		d.pos++
		if d.push(frame{}) {
			for d.More() {
				d.skip()
			}
		}
	case '[':
		d.pos++
		if d.push(frame{start: -1}) {
			for d.Next() {
				d.skip()
			}
		}
	case '"':
		d.scanString()
	case 't':
		d.literal("true")
	case 'f':
		d.literal("false")
	case 'n':
		d.literal("null")
	default:
		if text, _ := d.number(); text == nil {
			d.unexpected("a value")
		}
	}
}
