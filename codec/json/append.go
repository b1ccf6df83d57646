package json

import (
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"unicode/utf8"
)

// Close ends an object whose fields were each followed by a comma.
func Close(b []byte) []byte {
	if last := len(b) - 1; b[last] == ',' {
		b[last] = '}'
		return b
	}
	return append(b, '}')
}

// AppendInt appends an integer.
func AppendInt(b []byte, v int64) []byte { return strconv.AppendInt(b, v, 10) }

// AppendBool appends a boolean.
func AppendBool(b []byte, v bool) []byte { return strconv.AppendBool(b, v) }

// AppendBytes appends a string of base64, or null for nil.
func AppendBytes(b, v []byte) []byte {
	if v == nil {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, v)
	return append(b, '"')
}

// AppendString appends a quoted string. As Kubernetes does, it escapes <, > and & and the two line
// separators of Unicode, and replaces bytes that are not UTF-8.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	at := len(b)
	b = append(b, s...)
	if n := verbatim(b[at:]); n < len(s) {
		b = appendEscaped(b[:at+n], s[n:])
	}
	return append(b, '"')
}

// verbatim returns the length of a prefix of s whose bytes all stand for themselves in a string. It may stop
// up to seven bytes early.
func verbatim(s []byte) int {
	i := 0
	for ; len(s)-i >= 8; i += 8 {
		if escaped(binary.LittleEndian.Uint64(s[i:])) {
			return i
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			break
		}
	}
	return i
}

// escaped says whether any of the eight bytes of v cannot stand for itself.
func escaped(v uint64) bool {
	// Quote and ampersand differ in one bit, as do the two angle brackets.
	quote := v&^(ones*0x04) ^ ones*'"'
	angle := v&^(ones*0x02) ^ ones*'<'
	slash := v ^ ones*'\\'
	return ((quote-ones)&^quote|(angle-ones)&^angle|(slash-ones)&^slash|(v-ones*0x20)|v)&highs != 0
}

const hex = "0123456789abcdef"

func appendEscaped(b []byte, s string) []byte {
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < 0x20 || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
				b = append(b, s[from:i]...)
				b = appendEscape(b, c)
				from = i + 1
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = append(b, s[from:i]...)
			b = append(b, `\ufffd`...)
			from = i + n
		case r == '\u2028' || r == '\u2029':
			b = append(b, s[from:i]...)
			b = append(b, `\u202`...)
			b = append(b, hex[r&0xf])
			from = i + n
		}
		i += n
	}
	return append(b, s[from:]...)
}

func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\b':
		return append(b, '\\', 'b')
	case '\f':
		return append(b, '\\', 'f')
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	}
	return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
}
