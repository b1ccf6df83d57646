package watchcache

import (
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"monoplane.dev/apierrors"
)

// Selection says which objects are wanted.
type Selection struct {
	// Namespace, or all when empty.
	Namespace string
	// Label and Field; nil selects all.
	Label labels.Selector
	Field fields.Selector
}

// filter is a Selection made ready for use. The zero filter lets everything pass.
type filter struct {
	cache *Cache
	// prefix is what keys begin with: "namespace/" or nothing.
	prefix string
	// name is the object's name when only one is wanted.
	name   string
	labels labels.Selector
	fields []fields.Requirement
	// part is the narrowest part of the kind that holds all wanted objects; nil for the whole kind.
	part *topicKey
	// none is set when nothing can pass.
	none bool
}

// compile checks a selection and finds the shortest way to what it selects.
func (c *Cache) compile(s Selection) (*filter, error) {
	f := &filter{cache: c}
	if s.Namespace != "" {
		if !c.cfg.Kind.Namespaced {
			return nil, apierrors.New(apierrors.BadRequest, "%s have no namespace", c.cfg.Kind.Plural)
		}
		f.prefix = s.Namespace + "/"
	}
	if s.Label != nil && !s.Label.Empty() {
		f.labels = s.Label
	}
	if s.Field == nil || s.Field.Empty() {
		return f, nil
	}
	for _, r := range s.Field.Requirements() {
		if err := f.require(r); err != nil {
			return nil, err
		}
	}
	if f.name != "" && (f.prefix != "" || !c.cfg.Kind.Namespaced) {
		f.part = &topicKey{value: f.prefix + f.name}
	}
	return f, nil
}

// require adds one requirement.
func (f *filter) require(r fields.Requirement) error {
	equal := r.Operator == selection.Equals || r.Operator == selection.DoubleEquals
	switch {
	case r.Field == "metadata.name" && equal:
		f.none = f.none || f.name != "" && f.name != r.Value
		f.name = r.Value
		// An empty name selects nothing, and must not look like no requirement.
		f.none = f.none || r.Value == ""
		return nil
	case r.Field == "metadata.namespace" && equal && f.cache.cfg.Kind.Namespaced && r.Value != "":
		prefix := r.Value + "/"
		f.none = f.none || f.prefix != "" && f.prefix != prefix
		f.prefix = prefix
		return nil
	case r.Field == "metadata.name", r.Field == "metadata.namespace":
	default:
		ok := false
		if f.cache.cfg.Field != nil {
			_, ok = f.cache.cfg.Field(f.cache.cfg.Kind.New(), r.Field)
		}
		if !ok {
			return apierrors.New(apierrors.BadRequest, "field label not supported: %s", r.Field)
		}
		if equal && f.part == nil && f.cache.indexOf(r.Field) >= 0 {
			f.part = &topicKey{field: r.Field, value: r.Value}
		}
	}
	f.fields = append(f.fields, r)
	return nil
}

func (c *Cache) indexOf(field string) int {
	for i, f := range c.cfg.Indexes {
		if f == field {
			return i
		}
	}
	return -1
}

// all reports whether everything passes.
func (f *filter) all() bool {
	return !f.none && f.prefix == "" && f.name == "" && f.labels == nil && len(f.fields) == 0
}

// selects reports whether there is more than a namespace.
func (f *filter) selects() bool {
	return f.none || f.name != "" || f.labels != nil || len(f.fields) > 0
}

// match reports whether item passes. A nil item never does.
func (f *filter) match(item *Item) bool {
	if item == nil || f.none || !strings.HasPrefix(item.Key, f.prefix) {
		return false
	}
	if f.name != "" && item.Key[strings.IndexByte(item.Key, '/')+1:] != f.name {
		return false
	}
	for i := range f.fields {
		r := &f.fields[i]
		if (f.value(item, r.Field) == r.Value) == (r.Operator == selection.NotEquals) {
			return false
		}
	}
	return f.labels == nil || f.labels.Matches(labels.Set(item.Object.GetMetadata().GetLabels()))
}

func (f *filter) value(item *Item, field string) string {
	switch field {
	case "metadata.name":
		return item.Object.GetMetadata().GetName()
	case "metadata.namespace":
		return item.Object.GetMetadata().GetNamespace()
	}
	v, _ := f.cache.cfg.Field(item.Object, field)
	return v
}
