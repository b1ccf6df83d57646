package fieldmanager

import (
	"reflect"
	"slices"

	"monoplane.dev/codec/json"
)

// delta is what becomes of paths from one object to another: those that are new or have another value, and those that
// are gone. It is what structured-merge-diff's Compare finds in the JSON of the two.
type delta struct{ changed, removed set }

// compare compares two messages by their structs, either of which may be no value for none. In skip are the names of
// fields to leave out.
func (s *shape) compare(live, next reflect.Value, skip ...string) (d delta) {
	for _, f := range s.fields {
		if slices.Contains(skip, f.name) {
			continue
		}
		l, lp := f.get(live)
		n, np := f.get(next)
		if lp == np && (lp != present || shared(l, n)) {
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
func (f *field) below(l, n reflect.Value, was, is presence) (d delta, differs bool) {
	switch f.form {
	case fields:
		d = f.sub.compare(f.sub.message(l, was), f.sub.message(n, is))
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

func (f *field) compareMaps(l, n reflect.Value, was, is presence) (d delta) {
	var all []string
	if was == present {
		all = names(l)
	}
	if is == present {
		all = append(all, names(n)...)
	}
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		lv, lp := entry(l, was, name)
		nv, np := entry(n, is, name)
		if f.sub != nil {
			d.step("f:"+name, lp, np, f.sub.compare(f.sub.message(lv, lp), f.sub.message(nv, np)), false)
			continue
		}
		if lp != np || !equal(lv, nv) {
			d.step("f:"+name, lp, np, delta{}, true)
		}
	}
	return d
}

func entry(m reflect.Value, p presence, name string) (reflect.Value, presence) {
	if p != present {
		return reflect.Value{}, absent
	}
	if v := m.MapIndex(reflect.ValueOf(name)); v.IsValid() {
		return v, present
	}
	return reflect.Value{}, absent
}

// element is one of a list, with the step of the path that leads to it.
type element struct {
	name  string
	value reflect.Value
}

// elements returns those of a list, in order.
func (f *field) elements(v reflect.Value, p presence) []element {
	if p != present {
		return nil
	}
	out := make([]element, v.Len())
	for i := range out {
		e := v.Index(i)
		if f.form == keyed {
			out[i] = element{f.key(e), e}
		} else {
			out[i] = element{string(appendScalar([]byte("v:"), e)), e}
		}
	}
	if len(out) > 1 {
		slices.SortStableFunc(out, func(a, b element) int { return byElement(a.name, b.name) })
	}
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
func (f *field) compareKeyed(l, n reflect.Value, was, is presence) (d delta) {
	compareOne := func(name string, l, n []element) {
		var lv, nv reflect.Value
		lp, np := absent, absent
		if len(l) > 0 {
			lv, lp = l[0].value, present
		}
		if len(n) > 0 {
			nv, np = n[0].value, present
		}
		switch {
		case lp == np && shared(lv, nv):
		case f.granular:
			d.step(name, lp, np, f.sub.compare(f.sub.message(lv, lp), f.sub.message(nv, np)), false)
		case lp != np || !equal(lv, nv):
			d.step(name, lp, np, delta{}, true)
		}
	}
	zip(f.elements(l, was), f.elements(n, is), func(name string, l, n []element) {
		switch {
		case len(l) < 2 && len(n) < 2:
			compareOne(name, l, n)
		case len(l) > 1 && len(n) > 1:
			d.duplicates(name, l, n)
		case len(l) > 1:
			var fresh delta
			if len(n) > 0 {
				fresh = f.sub.compare(reflect.Value{}, n[0].value.Elem())
				d.changed = append(d.changed, node{name, true, fresh.changed})
			}
			d.removed = append(d.removed, node{name, true, nil})
		default:
			var gone delta
			if len(l) > 0 {
				gone = f.sub.compare(l[0].value.Elem(), reflect.Value{})
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

func (f *field) compareValues(l, n reflect.Value, was, is presence) (d delta) {
	zip(f.elements(l, was), f.elements(n, is), func(name string, l, n []element) {
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
func (f *field) key(v reflect.Value) string {
	b := append(make([]byte, 0, 64), "k:{"...)
	for _, k := range f.keys {
		value, p := k.get(v.Elem())
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
		b = appendScalar(b, value)
	}
	return string(append(b, '}'))
}
