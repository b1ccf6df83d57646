package strictyaml

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Decode reads n, which stands at path, into what the pointer into shows to, by the json names of its fields. What is
// not set is left alone.
func (r *Report) Decode(n *yaml.Node, path string, into any) {
	r.decode(n, path, reflect.ValueOf(into).Elem())
}

// decode reads n into v by the json names of v's fields. Null is as good as absent, as it is for Kubernetes, but not
// in a list.
func (r *Report) decode(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind == yaml.AliasNode {
		r.At(n.Line, path, "is an alias, which is not accepted; write it out")
		return
	}
	if isNull(n) {
		return
	}
	if v.Type() == reflect.TypeFor[yaml.Node]() {
		v.Set(reflect.ValueOf(*n))
		return
	}
	if t, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if text, ok := r.text(n, path); ok {
			if err := t.UnmarshalText([]byte(text)); err != nil {
				r.At(n.Line, path, "%v", err)
			}
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		p, before := reflect.New(v.Type().Elem()), len(r.Faults)
		r.decode(n, path, p.Elem())
		if len(r.Faults) == before { // or its zero value would be judged
			v.Set(p)
		}
	case reflect.Struct:
		r.fields(n, path, v)
	case reflect.Map:
		r.entries(n, path, v)
	case reflect.Slice:
		r.elements(n, path, v)
	case reflect.String:
		if text, ok := r.text(n, path); ok {
			v.SetString(text)
		}
	default:
		r.scalar(n, path, v)
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func (r *Report) text(n *yaml.Node, path string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		r.At(n.Line, path, "is %s, expected a string", found(n))
		return "", false
	}
	return n.Value, true
}

// scalar reads a number or a truth value.
func (r *Report) scalar(n *yaml.Node, path string, v reflect.Value) {
	var expected string
	tags := []string{"!!int"}
	switch {
	case v.Kind() == reflect.Bool:
		expected, tags = "true or false", []string{"!!bool"}
	case v.CanFloat():
		expected, tags = "a number", []string{"!!int", "!!float"}
	case v.CanInt() || v.CanUint():
		expected = fmt.Sprintf("a whole number of at most %d bits", v.Type().Bits())
		if v.CanUint() {
			expected += ", not negative"
		}
	default:
		r.At(n.Line, path, "cannot be read from a file: its Go type is %s", v.Type())
		return
	}
	for _, tag := range tags {
		if n.Kind == yaml.ScalarNode && n.ShortTag() == tag && n.Decode(v.Addr().Interface()) == nil {
			return
		}
	}
	r.At(n.Line, path, "is %s, expected %s", found(n), expected)
}

// found words a value.
func found(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "an object"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!str":
		return fmt.Sprintf("the string %q", n.Value)
	default:
		return n.Value
	}
}

func (r *Report) elements(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		r.At(n.Line, path, "is %s, expected a list", found(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, e := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		if isNull(e) {
			r.At(e.Line, at, "is empty, expected a value")
			continue
		}
		r.decode(e, at, v.Index(i))
	}
}

func (r *Report) entries(n *yaml.Node, path string, v reflect.Value) {
	if v.Type().Key().Kind() != reflect.String {
		r.At(n.Line, path, "cannot be read from a file: its Go type is %s", v.Type())
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	r.each(n, path, func(key *yaml.Node, value *yaml.Node, at string) {
		e := reflect.New(v.Type().Elem()).Elem()
		r.decode(value, at, e)
		v.SetMapIndex(reflect.ValueOf(key.Value).Convert(v.Type().Key()), e)
	})
}

func (r *Report) fields(n *yaml.Node, path string, v reflect.Value) {
	var names []string
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
			fields[name] = v.Field(i)
		}
	}
	r.each(n, path, func(key *yaml.Node, value *yaml.Node, at string) {
		if f, ok := fields[key.Value]; ok {
			r.decode(value, at, f)
		} else {
			r.At(key.Line, at, "unknown field; known are %s", strings.Join(names, ", "))
		}
	})
}

// each hands over the fields of an object. Of a repeated one it reports all but the first.
func (r *Report) each(n *yaml.Node, path string, take func(key, value *yaml.Node, at string)) {
	if n.Kind != yaml.MappingNode {
		r.At(n.Line, path, "is %s, expected an object", found(n))
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		switch first, again := lines[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			r.At(key.Line, path, "has %s for a key, expected a name", found(key))
		case again:
			r.At(key.Line, at, "is there already, on line %d", first)
		default:
			lines[key.Value] = key.Line
			take(key, n.Content[i+1], at)
		}
	}
}
