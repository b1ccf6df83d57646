package fieldmanager

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	kjson "sigs.k8s.io/json"

	"monoplane.dev/codec"
	"monoplane.dev/object"
)

// Version is another kind as which stored objects are served, such as the autoscalers of autoscaling/v1. Who writes
// them as that owns fields of that.
type Version struct {
	Kind *object.Kind
	// In and Out convert an object to and from the stored kind. They do not change it, and may share its parts.
	In, Out func(object.Object) object.Object
}

// version is one kind as which objects are served.
type version struct {
	Version
	// owned is the object as it is in JSON, without what nobody owns; it is made when it is first needed.
	owned func() *shape
	// typ is the same for structured-merge-diff; see types.
	once sync.Once
	typ  typed.ParseableType
}

func newVersion(v Version) *version {
	return &version{Version: v, owned: sync.OnceValue(func() *shape {
		return owned(shapeOf(v.Kind.New().ProtoReflect().Descriptor()))
	})}
}

// of returns the version of a name. What has another name is taken for the stored one: an entry that a client has made
// up.
func (k *Kind) of(apiVersion string) *version {
	for _, v := range k.versions {
		if v.Kind.APIVersion() == apiVersion {
			return v
		}
	}
	return k.versions[0]
}

// shown returns a stored object in this version.
func (v *version) shown(o object.Object) object.Object {
	if v.Out == nil {
		return o
	}
	return v.Out(o)
}

// stored returns an object of this version as it is stored.
func (v *version) stored(o object.Object) object.Object {
	if v.In == nil {
		return o
	}
	return v.In(o)
}

// types returns the version's type, which is made when something is applied for the first time.
func (v *version) types() typed.ParseableType {
	v.once.Do(func() { v.typ = schemaOf(v.Kind.New().ProtoReflect().Descriptor()) })
	return v.typ
}

// typed reads the JSON of an object of this version.
func (v *version) typed(doc []byte) (*typed.TypedValue, error) {
	var o map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &o); err != nil {
		return nil, err
	}
	return v.types().FromUnstructured(o, typed.AllowDuplicates)
}

// deltas are what becomes of paths from one stored object to another, in each version in which somebody owns some.
// As in Kubernetes they are looked at by way of the version of the write: what that cannot say has not changed.
type deltas struct {
	live, next object.Object
	// by is the version of the write.
	by    *version
	skip  []string
	known map[*version]delta
}

func (d *deltas) in(v *version) delta {
	out, ok := d.known[v]
	if !ok {
		live, next := d.shown(d.live, v), d.shown(d.next, v)
		out = v.owned().compare(reflect.ValueOf(live).Elem(), reflect.ValueOf(next).Elem(), d.skip...)
		if d.known == nil {
			d.known = make(map[*version]delta, 1)
		}
		d.known[v] = out
	}
	return out
}

// shown returns a stored object in a version.
func (d *deltas) shown(o object.Object, v *version) object.Object {
	if v != d.by {
		o = d.by.stored(d.by.shown(o))
	}
	return v.shown(o)
}

// converter converts objects of a kind from one version to another.
type converter struct{ kind *Kind }

// Convert implements merge.Converter.
func (c converter) Convert(o *typed.TypedValue, to fieldpath.APIVersion) (*typed.TypedValue, error) {
	if len(c.kind.versions) == 1 {
		return o, nil
	}
	m, _ := o.AsValue().Unstructured().(map[string]any)
	name, _ := m["apiVersion"].(string)
	from, into := c.kind.of(name), c.kind.of(string(to))
	if from == into {
		return o, nil
	}
	doc, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	read, ok := from.Kind.New().(codec.Typed)
	if !ok {
		return nil, fmt.Errorf("objects of %s cannot be read", from.Kind.APIVersion())
	}
	if _, err := codec.DecodeObject(doc, read); err != nil {
		return nil, err
	}
	shown, ok := into.shown(from.stored(read.(object.Object))).(codec.Typed)
	if !ok {
		return nil, fmt.Errorf("objects of %s cannot be written", into.Kind.APIVersion())
	}
	return into.typed(codec.AppendObject(nil, shown))
}

// IsMissingVersionError implements merge.Converter.
func (converter) IsMissingVersionError(error) bool { return false }
