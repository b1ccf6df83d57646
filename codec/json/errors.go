package json

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Error says why a document cannot be used: one syntax error, or values of the wrong type.
type Error struct {
	// Syntax says what is wrong with the text, and where; empty when the text is JSON.
	Syntax string
	// Types lists values of the wrong type, at most MaxReports.
	Types []TypeError
}

// TypeError is a value that a field cannot take.
type TypeError struct {
	// Path is the field, such as spec.containers[0].ports; empty for the document itself.
	Path string
	// Message says what was expected and what was found.
	Message string
}

// Error returns all problems in one line.
func (e *Error) Error() string {
	var b strings.Builder
	for _, t := range e.Types {
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		b.WriteString(t.Error())
	}
	if e.Syntax != "" {
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		b.WriteString(e.Syntax)
	}
	return b.String()
}

// Error returns the path and the message.
func (e TypeError) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// reports collects strict reports, each once.
type reports struct {
	list []string
	seen map[string]bool
}

// report notes something about the current field.
func (d *Decoder) report(what string) {
	r := &d.strict
	if d.failed || len(r.list) == MaxReports {
		return
	}
	text := what + strconv.Quote(d.path())
	if r.seen[text] {
		return
	}
	if r.seen == nil {
		r.seen = make(map[string]bool)
	}
	r.seen[text] = true
	r.list = append(r.list, text)
}

// syntax ends the decoding.
func (d *Decoder) syntax(format string, args ...any) {
	if d.failed {
		return
	}
	text := fmt.Sprintf(format, args...)
	if d.data != nil {
		before := d.data[:d.pos]
		line := 1 + bytes.Count(before, []byte("\n"))
		column := d.pos - bytes.LastIndexByte(before, '\n')
		text = fmt.Sprintf("line %d, column %d: %s", line, column, text)
	}
	if d.err == nil {
		d.err = &Error{}
	}
	d.err.Syntax = text
	d.failed = true
	d.pos = len(d.data)
}

// unexpected is a syntax error at the next byte.
func (d *Decoder) unexpected(expected string) {
	if d.pos >= len(d.data) {
		d.syntax("unexpected end of JSON input, expected %s", expected)
		return
	}
	d.syntax("unexpected %s, expected %s", d.found(), expected)
}

// found describes the byte at the current position.
func (d *Decoder) found() string {
	if d.pos >= len(d.data) {
		return "end of JSON input"
	}
	return "character " + strconv.QuoteRune(rune(d.data[d.pos]))
}

// mismatch reports the next value as being of the wrong type, and skips it.
func (d *Decoder) mismatch(expected string) {
	var found string
	switch d.peek() {
	case '"':
		found = "a string"
	case '{':
		found = "an object"
	case '[':
		found = "an array"
	case 't', 'f':
		found = "a boolean"
	case 'n':
		found = "null"
	default:
		found = "a number"
	}
	at := d.pos
	d.skip()
	if d.failed {
		return
	}
	// Values are repeated where a number, or text of some form, is expected: in a place for any text, such as a Secret,
	// it may be a secret that is written without quotes.
	text, anyText := d.data[at:d.pos], expected == "a string" || expected == base64Text
	if !anyText && (found == "a number" || found == "a string" && strings.HasPrefix(expected, "a string ")) {
		found = "the " + found[2:] + " " + short(text)
	}
	d.wrong("expected %s, found %s", expected, found)
}

// wrong reports the current field.
func (d *Decoder) wrong(format string, args ...any) {
	if d.failed {
		return
	}
	if d.err == nil {
		d.err = &Error{}
	}
	if len(d.err.Types) < MaxReports {
		d.err.Types = append(d.err.Types, TypeError{Path: d.path(), Message: fmt.Sprintf(format, args...)})
	}
}

// short bounds what is repeated of the input.
func short(text []byte) string {
	if len(text) > 64 {
		return string(text[:61]) + "..."
	}
	return string(text)
}

// maxPath bounds the path in a report, in bytes: names can be as long as the document, and would be repeated
// in every report below them.
const maxPath = 1024

// path returns the current field, such as spec.containers[0].image.
func (d *Decoder) path() string {
	var b strings.Builder
	for _, f := range d.frames {
		if b.Len()+int(f.end-f.start) > maxPath {
			b.WriteString("...")
			break
		}
		switch {
		case f.start >= 0 && f.end > 0:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(unquoted(d.data[f.start:f.end]))
		case f.start < 0 && f.end > 0:
			b.WriteByte('[')
			b.WriteString(strconv.Itoa(int(f.end) - 1))
			b.WriteByte(']')
		}
	}
	return b.String()
}
