package watchcache

import (
	"bytes"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/object"
)

// record is the content of an object when it was stored.
type record struct{ content []byte }

// examinedAtOnce is how many items are looked at for every run of changes, beside those that are replaced: enough to
// come round in the small clusters of tests, and little in large ones.
const examinedAtOnce = 4

func content(o object.Object) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(o)
	if err != nil {
		return nil
	}
	return b
}

// note remembers the content of an item, if mutations are to be detected.
func (c *Cache) note(item *Item) {
	if c.cfg.Mutated != nil && item != nil {
		item.recorded = &record{content(item.Object)}
	}
}

// examine reports an item that somebody has changed after it was stored, once for every change. The cache is locked,
// and one goroutine at a time does that.
func (c *Cache) examine(item *Item) {
	if c.cfg.Mutated == nil || item == nil {
		return
	}
	now := content(item.Object)
	before := item.recorded.content
	if bytes.Equal(before, now) {
		return
	}
	item.recorded = &record{now}
	was := c.cfg.Kind.New()
	if err := proto.Unmarshal(before, was); err != nil {
		was = c.cfg.Kind.New() // cannot be, and then the whole object is told
	}
	var d differences
	d.messages("", was.ProtoReflect(), item.Object.ProtoReflect())
	c.cfg.Mutated(fmt.Errorf("%s %s at revision %d was changed after it was stored: %s",
		c.cfg.Kind.Resource(), item.Key, item.Revision, strings.Join(d, ", ")))
}

// examineSome looks at the next few items in the order of their keys, from the first again after the last one.
func (c *Cache) examineSome() {
	if c.cfg.Mutated == nil {
		return
	}
	left := examinedAtOnce
	for key, item := range c.items.From(c.examined) {
		if key == c.examined {
			continue
		}
		if left == 0 {
			break
		}
		c.examined = key
		c.examine(item)
		left--
	}
	if left > 0 {
		c.examined = ""
	}
}

// CheckMutations looks at all present objects and at the history.
func (c *Cache) CheckMutations() {
	if c.cfg.Mutated == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, item := range c.items.From("") {
		c.examine(item)
	}
	for _, ch := range c.log.chunks {
		for _, s := range ch.states {
			c.examine(s.prev)
			c.examine(s.cur)
		}
	}
}

// differences are the fields in which two messages differ, as "spec.nodeName: "a" became "b"".
type differences []string

func (d *differences) add(path string, was, is any) {
	*d = append(*d, fmt.Sprintf("%s: %v became %v", strings.TrimPrefix(path, "."), shown(was), shown(is)))
}

// shown is how a value is to be printed.
func shown(v any) any {
	if v, ok := v.(protoreflect.Value); ok {
		switch v := v.Interface().(type) {
		case protoreflect.Message:
			return v.Interface()
		case protoreflect.List:
			return fmt.Sprintf("%d items", v.Len())
		case protoreflect.Map:
			return fmt.Sprintf("%d items", v.Len())
		}
	}
	return v
}

func (d *differences) messages(path string, was, is protoreflect.Message) {
	for i := range was.Descriptor().Fields().Len() {
		f := was.Descriptor().Fields().Get(i)
		at := path + "." + f.JSONName()
		a, b := was.Get(f), is.Get(f)
		switch {
		case was.Has(f) != is.Has(f):
			d.add(at, present(was, f), present(is, f))
		case a.Equal(b):
		case f.IsMap():
			d.maps(at, a.Map(), b.Map())
		case f.IsList():
			d.lists(at, f, a.List(), b.List())
		case f.Message() != nil:
			d.messages(at, a.Message(), b.Message())
		default:
			d.add(at, a, b)
		}
	}
}

func present(m protoreflect.Message, f protoreflect.FieldDescriptor) any {
	if !m.Has(f) {
		return "nothing"
	}
	return m.Get(f)
}

func (d *differences) lists(path string, f protoreflect.FieldDescriptor, was, is protoreflect.List) {
	if was.Len() != is.Len() {
		d.add(path, protoreflect.ValueOfList(was), protoreflect.ValueOfList(is))
	}
	for i := range min(was.Len(), is.Len()) {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch a, b := was.Get(i), is.Get(i); {
		case a.Equal(b):
		case f.Message() != nil:
			d.messages(at, a.Message(), b.Message())
		default:
			d.add(at, a, b)
		}
	}
}

// maps tells of whole values: which of their fields differ is to be seen in them.
func (d *differences) maps(path string, was, is protoreflect.Map) {
	was.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		at := fmt.Sprintf("%s[%v]", path, k)
		switch now := is.Get(k); {
		case !is.Has(k):
			d.add(at, v, "nothing")
		case !v.Equal(now):
			d.add(at, v, now)
		}
		return true
	})
	is.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if !was.Has(k) {
			d.add(fmt.Sprintf("%s[%v]", path, k), "nothing", v)
		}
		return true
	})
}
