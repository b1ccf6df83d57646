package fieldmanager

import (
	"reflect"
	"slices"

	"monoplane.dev/codec/json"
)

// appendNew appends, as fieldsV1 has it, what who makes an object owns: compare's changes from an object with nothing
// in it, without making them first. In skip are the names of fields to leave out.
func (s *shape) appendNew(b []byte, o reflect.Value, skip ...string) []byte {
	return append(s.appendFields(append(b, '{'), o, true, skip), '}')
}

// appendFields appends the fields of a message. Blank says that a message with nothing in it was there before, which
// has in JSON what is always written.
func (s *shape) appendFields(b []byte, m reflect.Value, blank bool, skip []string) []byte {
	for _, f := range s.fields {
		if slices.Contains(skip, f.name) {
			continue
		}
		n, is := f.get(m)
		l, was := reflect.Value{}, absent
		if blank {
			l, was = f.unset()
		}
		if is == absent || is == null && was == null {
			continue
		}
		p := path{begin: len(b)}
		b = append(separate(b), f.quoted...)
		switch f.form {
		case leaf:
			if was == present && is == present && equal(l, n) {
				b = b[:p.begin]
				continue
			}
			b = append(b, "{}"...)
		case fields:
			b = p.open(b, was == absent)
			if is == present {
				b = f.sub.appendFields(b, f.sub.message(n, is), was == present, nil)
			}
			if was == null && p.empty(b) {
				p.owned = true
			}
			b = p.close(b)
		default:
			b = p.open(b, was == absent)
			if is == present {
				b = f.appendElements(b, n)
			}
			b = p.close(b)
		}
	}
	return b
}

// appendElements appends the entries of a map or the elements of a list, none of which was there before.
func (f *field) appendElements(b []byte, v reflect.Value) []byte {
	if f.form == entries {
		all := names(v)
		slices.Sort(all)
		for _, name := range all {
			p := path{begin: len(b)}
			b = append(json.AppendString(separate(b), "f:"+name), ':')
			if f.sub == nil {
				b = append(b, "{}"...)
				continue
			}
			b = p.open(b, true)
			b = p.close(f.sub.appendFields(b, f.sub.message(v.MapIndex(reflect.ValueOf(name)), present), false, nil))
		}
		return b
	}
	for list := f.elements(v, present); len(list) > 0; {
		one := same(list, list[0].name)
		list = list[len(one):]
		p := path{begin: len(b)}
		b = append(json.AppendString(separate(b), one[0].name), ':')
		if f.form == values || len(one) > 1 || !f.granular {
			b = append(b, "{}"...) // what nothing tells apart is owned as a whole
			continue
		}
		b = p.open(b, true)
		b = p.close(f.sub.appendFields(b, f.sub.message(one[0].value, present), false, nil))
	}
	return b
}

// path is a step of a path that is being written: `"f:spec":{...}`.
type path struct {
	// owned says that the path itself is.
	owned bool
	// begin is where it begins, inside where its braces do, and children where what is below it does.
	begin, inside, children int
}

// separate makes room for the next one.
func separate(b []byte) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return b
}

func (p *path) open(b []byte, owned bool) []byte {
	p.owned = owned
	b = append(b, '{')
	p.inside = len(b)
	if owned {
		b = append(b, `".":{}`...)
	}
	p.children = len(b)
	return b
}

// empty says whether nothing has been written below the path.
func (p *path) empty(b []byte) bool { return len(b) == p.children }

func (p *path) close(b []byte) []byte {
	switch {
	case !p.empty(b):
		return append(b, '}')
	case p.owned:
		return append(b[:p.inside], '}')
	default:
		return b[:p.begin]
	}
}
