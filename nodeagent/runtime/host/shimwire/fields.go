package shimwire

import "errors"

// ErrMalformed says that bytes are not what this package writes.
var ErrMalformed = errors.New("malformed message")

// Encoder appends fields. Zero values are left out.
type Encoder struct{ buf []byte }

// Bytes returns what has been encoded.
func (e *Encoder) Bytes() []byte { return e.buf }

// String adds a text.
func (e *Encoder) String(tag byte, s string) {
	if s != "" {
		e.put(tag, s)
	}
}

// Strings adds a list of texts, in order, empty ones included.
func (e *Encoder) Strings(tag byte, list []string) {
	for _, s := range list {
		e.put(tag, s)
	}
}

// Int adds a number.
func (e *Encoder) Int(tag byte, n int64) {
	if n != 0 {
		var b [10]byte
		e.put(tag, string(appendUvarint(b[:0], uint64(n)<<1^uint64(n>>63))))
	}
}

// Ints adds a list of numbers, in order.
func (e *Encoder) Ints(tag byte, list []int64) {
	for _, n := range list {
		var b [10]byte
		e.put(tag, string(appendUvarint(b[:0], uint64(n)<<1^uint64(n>>63))))
	}
}

// Bool adds a truth value.
func (e *Encoder) Bool(tag byte, v bool) {
	if v {
		e.Int(tag, 1)
	}
}

func (e *Encoder) put(tag byte, value string) {
	e.buf = append(e.buf, tag)
	e.buf = appendUvarint(e.buf, uint64(len(value)))
	e.buf = append(e.buf, value...)
}

// Field is one decoded field.
type Field struct {
	Tag   byte
	Value []byte
}

// Text returns the field as a text.
func (f Field) Text() string { return string(f.Value) }

// Number returns the field as a number; 0 when it is not one.
func (f Field) Number() int64 {
	u, n := uvarint(f.Value)
	if n != len(f.Value) {
		return 0
	}
	return int64(u>>1) ^ -int64(u&1)
}

// Decode calls each for every field of body.
func Decode(body []byte, each func(Field)) error {
	for len(body) > 0 {
		tag := body[0]
		size, n := uvarint(body[1:])
		if n == 0 || size > uint64(len(body)-1-n) {
			return ErrMalformed
		}
		end := 1 + n + int(size)
		each(Field{Tag: tag, Value: body[1+n : end]})
		body = body[end:]
	}
	return nil
}

func appendUvarint(b []byte, u uint64) []byte {
	for u >= 0x80 {
		b = append(b, byte(u)|0x80)
		u >>= 7
	}
	return append(b, byte(u))
}

// uvarint returns the number and its size, which is 0 when b does not begin with one.
func uvarint(b []byte) (u uint64, n int) {
	for shift := 0; n < len(b) && shift < 64; shift += 7 {
		c := b[n]
		n++
		u |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return u, n
		}
	}
	return 0, 0
}
