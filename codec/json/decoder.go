package json

import "strings"

const (
	// MaxDepth is how deep objects and arrays may nest.
	MaxDepth = 512
	// MaxReports bounds the strict reports, and the type errors, that one document can cause.
	MaxReports = 100
	// maxSize keeps offsets within 32 bits. Callers bound bodies to far less.
	maxSize = 1 << 30
)

// Decoder reads one JSON document in a single pass. After the first syntax error it reads nothing more;
// after a value of the wrong type it goes on, so that all of them are reported.
//
// A Decoder is used once, by one goroutine.
type Decoder struct {
	data []byte
	pos  int // next byte to read; len(data) once failed
	key  []byte

	frames []frame
	array  [24]frame // backs frames for documents of usual depth

	arena strings.Builder
	buf   []byte // scratch for strings with escapes

	strict  reports
	err     *Error
	failed  bool
	version string
	kind    string
}

// frame is one level of nesting. Offsets instead of slices keep the garbage collector out of the hot path.
//
// Invariant: end is 0 until the first field or element is reached. In an array start is -1 and end is the
// number of elements reached.
type frame struct {
	start, end int32
}

// NewDecoder returns a decoder of data. Nothing that it decodes refers to data afterwards.
func NewDecoder(data []byte) *Decoder {
	d := &Decoder{data: data}
	d.frames = d.array[:0]
	if len(data) > maxSize {
		d.data = nil
		d.syntax("document of %d bytes is too large", len(data))
	}
	return d
}

// TypeMeta returns the apiVersion and kind that the outermost object gave, empty when it gave none.
func (d *Decoder) TypeMeta() (apiVersion, kind string) { return d.version, d.kind }

// Err returns what makes the document unusable, or nil. It is an *Error.
func (d *Decoder) Err() error {
	if d.err == nil {
		return nil
	}
	return d.err
}

// Strict returns the unknown and duplicate fields, worded like `unknown field "spec.foo"`, each once and at
// most MaxReports.
func (d *Decoder) Strict() []string { return d.strict.list }

// End checks that nothing but white space is left.
func (d *Decoder) End() {
	if d.peek(); d.pos < len(d.data) {
		d.syntax("unexpected %s after the document", d.found())
	}
}

// Object enters an object. It returns false, with the value skipped, when there is none: null is passed
// over in silence unless it is the whole document, anything else is a type error.
func (d *Decoder) Object() bool {
	if d.peek() != '{' {
		if len(d.frames) == 0 || !d.Null() {
			d.mismatch("an object")
		}
		return false
	}
	d.pos++
	return d.push(frame{})
}

// More goes to the next field of the object and reads its name (see Key). It returns false, and leaves the
// object, when there is none.
func (d *Decoder) More() bool {
	f := &d.frames[len(d.frames)-1]
	if i := d.pos; f.end != 0 && i+1 < len(d.data) && d.data[i] == ',' && d.data[i+1] == '"' {
		d.pos++ // the usual case
	} else if !d.nextField(f.end != 0) {
		return false
	}
	f.start = int32(d.pos)
	key, ok := d.scanString()
	if !ok {
		return false
	}
	f.end = int32(d.pos)
	d.key = key
	if d.peek() != ':' {
		d.unexpected("':' after a field name")
		return false
	}
	d.pos++
	return true
}

// nextField goes to the quote that begins the next name, or leaves the object.
func (d *Decoder) nextField(after bool) bool {
	c := d.peek()
	if c == '}' {
		d.pos++
		d.pop()
		return false
	}
	if after {
		if c != ',' {
			d.unexpected("',' or '}' after a field")
			return false
		}
		d.pos++
		c = d.peek()
	}
	if c != '"' {
		d.unexpected("a field name")
		return false
	}
	return true
}

// Key returns the name of the field that More went to. It is valid until the next value is read.
func (d *Decoder) Key() []byte { return d.key }

// Once notes that field number n of an object was met, in seen, and reports it when it was met before.
// The later value wins.
func (d *Decoder) Once(seen *uint64, n uint) {
	if *seen&(1<<n) != 0 {
		d.duplicate()
	}
	*seen |= 1 << n
}

func (d *Decoder) duplicate() { d.report("duplicate field ") }

// Unknown reports the field that More went to as unknown and skips its value.
func (d *Decoder) Unknown() {
	d.report("unknown field ")
	d.skip()
}

// Array enters an array. It returns false, with the value skipped, when there is none.
func (d *Decoder) Array() bool {
	if d.peek() != '[' {
		if !d.Null() {
			d.mismatch("an array")
		}
		return false
	}
	d.pos++
	return d.push(frame{start: -1})
}

// Next goes to the next element of the array. It returns false, and leaves the array, when there is none.
func (d *Decoder) Next() bool {
	f := &d.frames[len(d.frames)-1]
	c := d.peek()
	if c == ']' {
		d.pos++
		d.pop()
		return false
	}
	if f.end != 0 {
		if c != ',' {
			d.unexpected("',' or ']' after an element")
			return false
		}
		d.pos++
	}
	f.end++
	return !d.failed
}

// Null reads null if it comes next, and says whether it did.
func (d *Decoder) Null() bool {
	if d.peek() != 'n' {
		return false
	}
	return d.literal("null")
}

// APIVersion reads the apiVersion of an object.
func (d *Decoder) APIVersion() {
	var s string
	d.String(&s)
	if len(d.frames) == 1 {
		d.version = s
	}
}

// Kind reads the kind of an object.
func (d *Decoder) Kind() {
	var s string
	d.String(&s)
	if len(d.frames) == 1 {
		d.kind = s
	}
}

func (d *Decoder) push(f frame) bool {
	if len(d.frames) == MaxDepth {
		d.syntax("nested deeper than %d levels", MaxDepth)
		return false
	}
	d.frames = append(d.frames, f)
	return true
}

func (d *Decoder) pop() { d.frames = d.frames[:len(d.frames)-1] }
