package fieldmanager

import (
	"bytes"
	"slices"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/codec/json"
)

// presence is what JSON has of a field.
type presence uint8

const (
	absent presence = iota
	null
	present
)

// delta is what becomes of paths from one object to another: those that are new or have another value, and those that
// are gone. It is what structured-merge-diff's Compare finds in the JSON of the two.
type delta struct{ changed, removed set }

// get returns the field's value in m, which may be nil. A value that is present is valid.
func (f *field) get(m protoreflect.Message) (protoreflect.Value, presence) {
	if m == nil {
		return protoreflect.Value{}, absent
	}
	for _, fd := range f.via {
		m = m.Get(fd).Message()
	}
	switch {
	case !m.Has(f.fd):
	case f.time:
		if v := m.Get(f.fd); !zeroTime(v.Message()) {
			return v, present
		}
	default:
		return m.Get(f.fd), present
	}
	switch {
	case f.null:
		return protoreflect.Value{}, null
	case f.always:
		return m.Get(f.fd), present
	default:
		return protoreflect.Value{}, absent
	}
}

func zeroTime(m protoreflect.Message) bool {
	t, ok := m.Interface().(interface {
		GetSeconds() int64
		GetNanos() int32
	})
	return ok && json.ZeroTime(t.GetSeconds(), t.GetNanos())
}

// compare compares two messages, either of which may be nil for none. In skip are the names of fields to leave out.
func (s *shape) compare(live, next protoreflect.Message, skip ...string) (d delta) {
	if live == next {
		return d
	}
	for _, f := range s.fields {
		if slices.Contains(skip, f.name) {
			continue
		}
		l, lp := f.get(live)
		n, np := f.get(next)
		if lp == absent && np == absent || lp == null && np == null {
			continue
		}
		below, differs := f.below(l, n, lp, np)
		d.step(f.element, lp, np, below, differs)
	}
	return d
}

// step adds a path element, where was and is say what JSON has of its value, below is what has become of the paths
// below it, and differs says that the path itself stands for the value, and has another one now.
func (d *delta) step(element string, was, is presence, below delta, differs bool) {
	if len(below.changed) > 0 || was == absent || differs && is != absent {
		d.changed = append(d.changed, node{element, was == absent || differs && is != absent, below.changed})
	}
	if len(below.removed) > 0 || is == absent {
		d.removed = append(d.removed, node{element, is == absent, below.removed})
	}
}

// below compares two values of the field. Differs says that the path itself stands for the value, and has another one
// now.
func (f *field) below(l, n protoreflect.Value, was, is presence) (d delta, differs bool) {
	switch f.form {
	case fields:
		d = f.sub.compare(message(l, was), message(n, is))
		return d, was != is && was != absent && is != absent && d.empty()
	case entries:
		d = f.compareMaps(l, n, was, is)
	case keyed:
		d = f.compareKeyed(l, n, was, is)
	case values:
		d = f.compareValues(l, n, was, is)
	case leaf:
		return d, was != is || was == present && !equal(l, n)
	}
	return d, false
}

func (d delta) empty() bool { return len(d.changed) == 0 && len(d.removed) == 0 }

func message(v protoreflect.Value, p presence) protoreflect.Message {
	if p != present {
		return nil
	}
	return v.Message()
}

// equal compares leaves. Messages of one object may be those of the other. Those that differ may be the same in JSON,
// where some messages are written though they are absent.
func equal(a, b protoreflect.Value) bool {
	switch x := a.Interface().(type) {
	case protoreflect.Message:
		return x == b.Message() || a.Equal(b) || sameJSON(x, b.Message())
	case protoreflect.List:
		if a.Equal(b) {
			return true
		}
		y := b.List()
		if x.Len() != y.Len() {
			return false
		}
		for i := range x.Len() {
			m, ok := x.Get(i).Interface().(protoreflect.Message)
			if !ok || !sameJSON(m, y.Get(i).Message()) {
				return false
			}
		}
		return true
	default:
		return a.Equal(b)
	}
}

func sameJSON(a, b protoreflect.Message) bool {
	x, ok := a.Interface().(json.Value)
	y, same := b.Interface().(json.Value)
	return ok && same && bytes.Equal(x.AppendJSON(nil), y.AppendJSON(nil))
}

func (f *field) compareMaps(l, n protoreflect.Value, was, is presence) (d delta) {
	var names []string
	var lm, nm protoreflect.Map
	collect := func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		names = append(names, k.String())
		return true
	}
	if was == present {
		lm = l.Map()
		lm.Range(collect)
	}
	if is == present {
		nm = n.Map()
		nm.Range(collect)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		lv, lp := entry(lm, name)
		nv, np := entry(nm, name)
		if f.sub != nil {
			d.step("f:"+name, lp, np, f.sub.compare(message(lv, lp), message(nv, np)), false)
			continue
		}
		if lp != np || !equal(lv, nv) {
			d.step("f:"+name, lp, np, delta{}, true)
		}
	}
	return d
}

func entry(m protoreflect.Map, name string) (protoreflect.Value, presence) {
	if m == nil {
		return protoreflect.Value{}, absent
	}
	v := m.Get(protoreflect.ValueOfString(name).MapKey())
	if !v.IsValid() {
		return v, absent
	}
	return v, present
}

// element is one of a list, with the step of the path that leads to it.
type element struct {
	name  string
	value protoreflect.Value
}

func (f *field) elements(v protoreflect.Value, p presence, name func(protoreflect.Value) string) []element {
	if p != present {
		return nil
	}
	list := v.List()
	out := make([]element, list.Len())
	for i := range out {
		e := list.Get(i)
		out[i] = element{name(e), e}
	}
	slices.SortStableFunc(out, func(a, b element) int { return byElement(a.name, b.name) })
	return out
}

// same returns those at the beginning of the list that have the name.
func same(list []element, name string) []element {
	n := 0
	for n < len(list) && list[n].name == name {
		n++
	}
	return list[:n]
}

// zip calls visit for each name that either of the lists has, with its elements there.
func zip(l, n []element, visit func(name string, l, n []element)) {
	for len(l) > 0 || len(n) > 0 {
		var name string
		switch {
		case len(l) == 0:
			name = n[0].name
		case len(n) == 0 || byElement(l[0].name, n[0].name) <= 0:
			name = l[0].name
		default:
			name = n[0].name
		}
		ls, ns := same(l, name), same(n, name)
		visit(name, ls, ns)
		l, n = l[len(ls):], n[len(ns):]
	}
}

// compareKeyed compares lists by the keys of their elements. Those that have their keys in common are one.
func (f *field) compareKeyed(l, n protoreflect.Value, was, is presence) (d delta) {
	compareOne := func(name string, l, n []element) {
		var lm, nm protoreflect.Message
		lp, np := absent, absent
		if len(l) > 0 {
			lm, lp = l[0].value.Message(), present
		}
		if len(n) > 0 {
			nm, np = n[0].value.Message(), present
		}
		if granular(f.sub.message) {
			d.step(name, lp, np, f.sub.compare(lm, nm), false)
		} else if lp != np || !equal(l[0].value, n[0].value) {
			d.step(name, lp, np, delta{}, true)
		}
	}
	zip(f.elements(l, was, f.key), f.elements(n, is, f.key), func(name string, l, n []element) {
		switch {
		case len(l) < 2 && len(n) < 2:
			compareOne(name, l, n)
		case len(l) > 1 && len(n) > 1:
			d.duplicates(name, l, n)
		case len(l) > 1:
			var fresh delta
			if len(n) > 0 {
				fresh = f.sub.compare(nil, n[0].value.Message())
				d.changed = append(d.changed, node{name, true, fresh.changed})
			}
			d.removed = append(d.removed, node{name, true, nil})
		default:
			var gone delta
			if len(l) > 0 {
				gone = f.sub.compare(l[0].value.Message(), nil)
				d.removed = append(d.removed, node{name, true, gone.removed})
			}
			d.changed = append(d.changed, node{name, true, nil})
		}
	})
	return d
}

// duplicates compares elements that nothing tells apart, as a whole.
func (d *delta) duplicates(name string, l, n []element) {
	if !slices.EqualFunc(l, n, func(a, b element) bool { return equal(a.value, b.value) }) {
		d.changed = append(d.changed, node{name, true, nil})
	}
}

func (f *field) compareValues(l, n protoreflect.Value, was, is presence) (d delta) {
	name := func(v protoreflect.Value) string { return string(f.appendScalar([]byte("v:"), v)) }
	zip(f.elements(l, was, name), f.elements(n, is, name), func(name string, l, n []element) {
		switch {
		case len(l) == 0:
			d.step(name, absent, present, delta{}, false)
		case len(n) == 0:
			d.step(name, present, absent, delta{}, false)
		case len(l) > 1 && len(n) > 1:
			d.duplicates(name, l, n)
		case len(l) > 1:
			d.changed = append(d.changed, node{name, true, nil})
			d.removed = append(d.removed, node{name, true, nil})
		case len(n) > 1:
			d.changed = append(d.changed, node{name, true, nil})
			d.removed = append(d.removed, node{name, true, nil})
		}
	})
	return d
}

// key returns the step of the path that leads to an element: its keys, as far as it has them.
func (f *field) key(v protoreflect.Value) string {
	b := append(make([]byte, 0, 64), "k:{"...)
	for _, k := range f.keys {
		value, p := k.get(v.Message())
		if p == absent && !k.defaulted {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(json.AppendString(b, k.name), ':')
		if p == absent {
			b = json.AppendString(b, k.keyDefault)
			continue
		}
		b = k.appendScalar(b, value)
	}
	return string(append(b, '}'))
}

// appendScalar appends a value of the field, or of an element of it, as JSON.
func (f *field) appendScalar(b []byte, v protoreflect.Value) []byte {
	switch x := v.Interface().(type) {
	case string:
		return json.AppendString(b, x)
	case bool:
		return json.AppendBool(b, x)
	case int32:
		return json.AppendInt(b, int64(x))
	case int64:
		return json.AppendInt(b, x)
	default:
		return strconv.AppendQuote(b, v.String())
	}
}
