package json

import (
	"encoding/base64"
	"strconv"
	"strings"
)

// String reads a string into *p; null leaves it alone.
func (d *Decoder) String(p *string) {
	if d.peek() == '"' {
		if s, ok := d.scanString(); ok {
			*p = d.keep(s)
		}
	} else if !d.Null() {
		d.mismatch("a string")
	}
}

// OptionalString reads a string into a new *p; null makes it nil.
func (d *Decoder) OptionalString(p **string) {
	if d.Null() {
		*p = nil
		return
	}
	s := new(string)
	d.String(s)
	*p = s
}

// Bool reads a boolean into *p; null leaves it alone.
func (d *Decoder) Bool(p *bool) {
	switch d.peek() {
	case 't':
		*p = d.literal("true")
	case 'f':
		*p = !d.literal("false")
	default:
		if !d.Null() {
			d.mismatch("a boolean")
		}
	}
}

// OptionalBool reads a boolean into a new *p; null makes it nil.
func (d *Decoder) OptionalBool(p **bool) {
	if d.Null() {
		*p = nil
		return
	}
	v := new(bool)
	d.Bool(v)
	*p = v
}

// Int64 reads an integer into *p; null leaves it alone.
func (d *Decoder) Int64(p *int64) {
	if v, ok := d.integer(64); ok {
		*p = v
	}
}

// OptionalInt64 reads an integer into a new *p; null makes it nil.
func (d *Decoder) OptionalInt64(p **int64) {
	if d.Null() {
		*p = nil
		return
	}
	v := new(int64)
	d.Int64(v)
	*p = v
}

// Int32 reads an integer into *p; null leaves it alone.
func (d *Decoder) Int32(p *int32) {
	if v, ok := d.integer(32); ok {
		*p = int32(v)
	}
}

// OptionalInt32 reads an integer into a new *p; null makes it nil.
func (d *Decoder) OptionalInt32(p **int32) {
	if d.Null() {
		*p = nil
		return
	}
	v := new(int32)
	d.Int32(v)
	*p = v
}

func (d *Decoder) integer(size int) (int64, bool) {
	c := d.peek()
	if c != '-' && (c < '0' || c > '9') {
		if !d.Null() {
			d.mismatch("an integer")
		}
		return 0, false
	}
	at := d.pos
	text, whole := d.number()
	if text == nil {
		d.unexpected("a value")
		return 0, false
	}
	if whole {
		if v, ok := atoi(text); ok && (size == 64 || v == int64(int32(v))) {
			return v, true
		}
		if v, err := strconv.ParseInt(string(text), 10, size); err == nil {
			return v, true
		}
		d.wrong("expected an integer of %d bits, found the number %s", size, short(text))
		return 0, false
	}
	d.pos = at
	d.mismatch("an integer")
	return 0, false
}

// atoi converts integers of up to 18 digits.
func atoi(text []byte) (int64, bool) {
	negative := text[0] == '-'
	if negative {
		text = text[1:]
	}
	if len(text) > 18 {
		return 0, false
	}
	var v int64
	for _, c := range text {
		v = v*10 + int64(c-'0')
	}
	if negative {
		v = -v
	}
	return v, true
}

// base64Text is what bytes are in JSON.
const base64Text = "a string of base64"

// Bytes reads base64 text into *p; null makes it nil.
func (d *Decoder) Bytes(p *[]byte) {
	if d.Null() {
		*p = nil
		return
	}
	if d.peek() != '"' {
		d.mismatch(base64Text)
		return
	}
	s, ok := d.scanString()
	if !ok {
		return
	}
	b := make([]byte, base64.StdEncoding.DecodedLen(len(s)))
	n, err := base64.StdEncoding.Decode(b, s)
	if err != nil {
		d.wrong("expected %s: %v", base64Text, err)
		return
	}
	*p = b[:n:n]
}

const (
	// arenaSize is how much text of short strings shares one allocation. Keeping one string keeps its
	// arena, so it is small.
	arenaSize = 1024
	// arenaString is the longest string that goes into an arena.
	arenaString = 128
)

// keep returns s as a string of its own. Short ones share allocations.
func (d *Decoder) keep(s []byte) string {
	if len(s) > arenaString {
		return string(s)
	}
	a := &d.arena
	at := a.Len()
	if a.Cap()-at < len(s) {
		*a = strings.Builder{}
		a.Grow(min(arenaSize, max(len(s), len(d.data)-d.pos+len(s))))
		at = 0
	}
	a.Write(s)
	return a.String()[at:]
}
