package fieldmanager

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"monoplane.dev/codec/value"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

const (
	// updating and applying are the operations of entries.
	updating = "Update"
	applying = "Apply"
	// fieldsType is the only form of the fields.
	fieldsType = "FieldsV1"
	// maxUpdaters is how many entries of updates an object has; of more the oldest become one, of ancientManager.
	maxUpdaters    = 10
	ancientManager = "ancient-changes"
	// unknownManager writes without saying its name.
	unknownManager = "unknown"
)

// Write is one write of an object.
type Write struct {
	// Manager is who writes.
	Manager string
	// APIVersion is that of the object as the manager sees it.
	APIVersion string
	// Subresource is what the manager writes of the object; empty for the object itself.
	Subresource string
	// Time is now.
	Time *metav1.Time
	// Skip are the fields of the object that the write does not have a say in, such as "status".
	Skip []string
}

// manager is who the write's entry belongs to.
func (w Write) manager() string {
	if w.Manager == "" {
		return unknownManager
	}
	return w.Manager
}

// Kind tracks the fields of objects of one kind. It is safe for concurrent use.
type Kind struct {
	// versions are the kinds as which the objects are served, first the one as which they are stored.
	versions []*version
}

// New returns what tracks the fields of objects of the kind, which are served in other versions as well.
func New(kind *object.Kind, others ...Version) *Kind {
	k := &Kind{versions: []*version{newVersion(Version{Kind: kind})}}
	for _, v := range others {
		k.versions = append(k.versions, newVersion(v))
	}
	return k
}

// Update returns the entries of next, which w makes of live, both as they are stored; nil for live means that next is
// new. Before are the entries until now.
func (k *Kind) Update(
	live, next object.Object, before []*metav1.ManagedFieldsEntry, w Write,
) []*metav1.ManagedFieldsEntry {
	v := k.of(w.APIVersion)
	if live == nil {
		return v.create(v.shown(next), w)
	}
	if len(before) == 0 {
		return nil
	}
	all := deltas{live: live, next: next, by: v, skip: w.Skip}
	d := all.in(v)
	if d.empty() && len(k.versions) == 1 {
		return before
	}
	out := make([]*metav1.ManagedFieldsEntry, 0, len(before)+1)
	var own *metav1.ManagedFieldsEntry
	for _, e := range before {
		mine := own == nil && w.owns(e)
		if mine {
			own = e
			e = d.merged(e, w)
		} else {
			e = all.in(k.of(e.GetApiVersion())).rest(e)
		}
		if e != nil {
			out = append(out, e)
		}
	}
	if own == nil && len(d.changed) > 0 {
		out = append(out, w.entry(raw(d.changed)))
	}
	return sorted(capped(out))
}

// create returns the entries of a new object.
func (v *version) create(o object.Object, w Write) []*metav1.ManagedFieldsEntry {
	b := scratch.Get().(*[]byte)
	defer scratch.Put(b)
	*b = v.owned().appendNew((*b)[:0], reflect.ValueOf(o).Elem(), w.Skip...)
	if string(*b) == "{}" {
		return nil
	}
	return []*metav1.ManagedFieldsEntry{w.entry(bytes.Clone(*b))}
}

// scratch is where fieldsV1 is written before it is known how long it gets: what is kept has no room to spare.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// raw returns a set as fieldsV1 has it.
func raw(s set) []byte {
	b := scratch.Get().(*[]byte)
	defer scratch.Put(b)
	*b = s.appendJSON((*b)[:0])
	return bytes.Clone(*b)
}

// owns says whether e is the entry that the write belongs to.
func (w Write) owns(e *metav1.ManagedFieldsEntry) bool {
	return e.GetOperation() == updating && e.GetManager() == w.manager() && e.GetApiVersion() == w.APIVersion &&
		e.GetSubresource() == w.Subresource
}

// entry returns a new entry of the write.
func (w Write) entry(fields []byte) *metav1.ManagedFieldsEntry {
	return &metav1.ManagedFieldsEntry{
		Manager: w.manager(), Operation: updating, ApiVersion: w.APIVersion, Time: w.Time, FieldsType: fieldsType,
		FieldsV1: &metav1.FieldsV1{Raw: fields}, Subresource: w.Subresource,
	}
}

// rest returns what is left of an entry of somebody else; nil for nothing.
func (d delta) rest(e *metav1.ManagedFieldsEntry) *metav1.ManagedFieldsEntry {
	owned := e.GetFieldsV1().GetRaw()
	if !mentions(owned, d.changed) && !mentions(owned, d.removed) {
		return e // such as who made an object, when its status is written
	}
	have, err := parseSet(owned)
	if err != nil {
		return nil
	}
	s, lost := d.from(have)
	switch {
	case len(s) == 0:
		return nil
	case !lost:
		return e
	default:
		return holding(e, s)
	}
}

// mentions says whether fieldsV1 may have a path that begins as one of the set does: with the name of a field.
func mentions(fields []byte, s set) bool {
	return slices.ContainsFunc(s, func(n node) bool { return bytes.Contains(fields, []byte(n.element)) })
}

// from returns what is left of a set.
func (d delta) from(s set) (out set, lost bool) {
	out, changed := without(s, d.changed)
	out, removed := without(out, d.removed)
	return out, changed || removed
}

// merged returns the entry of who writes; nil when nothing is left of it. It is as new as the last change.
func (d delta) merged(e *metav1.ManagedFieldsEntry, w Write) *metav1.ManagedFieldsEntry {
	have, err := parseSet(e.GetFieldsV1().GetRaw())
	if err != nil {
		have = nil
	}
	next := e.Shallow()
	if len(d.changed) > 0 {
		next.Time = w.Time
		if len(d.removed) == 0 && contains(have, d.changed) {
			return next // as with most writes of a status
		}
	}
	s, _ := d.from(have)
	if s = union(s, d.changed); len(s) == 0 {
		return nil
	}
	next.FieldsV1 = &metav1.FieldsV1{Raw: raw(s)}
	return next
}

// holding returns e with other fields.
func holding(e *metav1.ManagedFieldsEntry, s set) *metav1.ManagedFieldsEntry {
	next := e.Shallow()
	next.FieldsV1 = &metav1.FieldsV1{Raw: raw(s)}
	return next
}

// capped makes one entry of the oldest of updates when there are too many. It may change the list.
func capped(list []*metav1.ManagedFieldsEntry) []*metav1.ManagedFieldsEntry {
	var updaters []*metav1.ManagedFieldsEntry
	for _, e := range list {
		if e.GetOperation() == updating {
			updaters = append(updaters, e)
		}
	}
	if len(updaters) <= maxUpdaters {
		return list
	}
	slices.SortFunc(updaters, func(a, b *metav1.ManagedFieldsEntry) int {
		return cmp.Or(cmp.Compare(a.GetTime().GetSeconds(), b.GetTime().GetSeconds()),
			strings.Compare(identifier(a), identifier(b)))
	})
	first := make(map[string]*metav1.ManagedFieldsEntry) // of each version
	bucket := make(map[string]*metav1.ManagedFieldsEntry)
	for _, e := range updaters {
		if e.GetManager() == ancientManager && e.GetSubresource() == "" {
			bucket[e.GetApiVersion()] = e
		}
	}
	count := len(updaters)
	for _, e := range updaters {
		if count <= maxUpdaters {
			break
		}
		version := e.GetApiVersion()
		if e == bucket[version] && first[version] != nil {
			continue
		}
		if first[version] == nil {
			first[version] = e
			continue
		}
		into, old := bucket[version], bucket[version]
		if into == nil {
			old = first[version]
			into = &metav1.ManagedFieldsEntry{
				Manager: ancientManager, Operation: updating, ApiVersion: version, FieldsType: fieldsType,
				FieldsV1: old.GetFieldsV1(),
			}
		}
		a, aerr := parseSet(into.GetFieldsV1().GetRaw())
		b, berr := parseSet(e.GetFieldsV1().GetRaw())
		if aerr != nil || berr != nil {
			continue
		}
		into = holding(into, union(a, b))
		into.Time = e.GetTime()
		list[slices.Index(list, old)] = into
		list = slices.DeleteFunc(list, func(x *metav1.ManagedFieldsEntry) bool { return x == e })
		bucket[version] = into
		count--
	}
	return list
}

// identifier orders entries of one second.
func identifier(e *metav1.ManagedFieldsEntry) string {
	return e.GetManager() + "\x00" + e.GetOperation() + "\x00" + e.GetApiVersion() + "\x00" + e.GetSubresource()
}

// sorted sorts entries as Kubernetes does: appliers first, then by time and name.
func sorted(list []*metav1.ManagedFieldsEntry) []*metav1.ManagedFieldsEntry {
	slices.SortStableFunc(list, func(a, b *metav1.ManagedFieldsEntry) int {
		return cmp.Or(
			strings.Compare(a.GetOperation(), b.GetOperation()),
			cmp.Compare(a.GetTime().GetSeconds(), b.GetTime().GetSeconds()),
			strings.Compare(a.GetManager(), b.GetManager()),
			strings.Compare(a.GetApiVersion(), b.GetApiVersion()),
			strings.Compare(a.GetSubresource(), b.GetSubresource()))
	})
	return list
}

// Asked returns the entries that a write of the object itself begins with: those of live, unless the request states
// others, or with a single empty one that there shall be none.
func Asked(asked, live []*metav1.ManagedFieldsEntry) []*metav1.ManagedFieldsEntry {
	switch {
	case len(asked) == 0 || sameEntries(asked, live):
		return live
	case len(asked) == 1 && proto.Size(asked[0]) == 0:
		return nil
	}
	out := make([]*metav1.ManagedFieldsEntry, 0, len(asked))
	seen := make(map[string]bool)
	for _, e := range asked {
		s, err := canonical(e.GetFieldsV1().GetRaw())
		known := (e.GetOperation() == updating || e.GetOperation() == applying) && e.GetFieldsType() == fieldsType
		if err != nil || !known || e.GetApiVersion() == "" || seen[identifier(e)] {
			return live
		}
		seen[identifier(e)] = true
		next := holding(e, s)
		next.Time = value.Time(value.GoTime(e.GetTime()))
		out = append(out, next)
	}
	return sorted(out)
}

// SameButTime says whether lists of entries differ in nothing but when fields were written.
func SameButTime(a, b []*metav1.ManagedFieldsEntry) bool {
	if len(a) != len(b) {
		return false
	}
	byName := make(map[string]*metav1.ManagedFieldsEntry, len(a))
	for _, e := range a {
		byName[identifier(e)] = e
	}
	return !slices.ContainsFunc(b, func(e *metav1.ManagedFieldsEntry) bool {
		have := byName[identifier(e)]
		if have == nil {
			return true
		}
		timed := e.Shallow()
		timed.Time = have.GetTime()
		return !proto.Equal(have, timed)
	})
}

// canonical reads what a client has written, as it should have.
func canonical(text []byte) (set, error) {
	var s fieldpath.Set
	if err := s.FromJSON(bytes.NewReader(text)); err != nil {
		return nil, err
	}
	text, err := s.ToJSON()
	if err != nil {
		return nil, err
	}
	return parseSet(text)
}

func sameEntries(a, b []*metav1.ManagedFieldsEntry) bool {
	return slices.EqualFunc(a, b, func(x, y *metav1.ManagedFieldsEntry) bool { return x == y || proto.Equal(x, y) })
}
