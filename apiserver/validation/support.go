package validation

import (
	"cmp"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/apierrors"
	"monoplane.dev/object"
	"monoplane.dev/rules/semantic"

	optionsv1 "monoplane.dev/api/options/v1"
)

const (
	refusedText = "not supported by this version of Monoplane"
	storedText  = ": kept but has no effect in this version"
	driverText  = ": no node has a driver for it: pods that mount it wait, with the event FailedMount"
)

// Support checks objects against the support option of their fields (design decision 1): what Monoplane
// does not serve yet is refused by name, what it only keeps is answered with a warning. Nothing is ignored
// in silence. It is safe for concurrent use.
//
// Generated code (SetsLimited) tells quickly that an object has no such field, which is the rule. For others it
// works out once for each message type which fields lead to one that matters.
type Support struct {
	mu    sync.RWMutex
	plans map[protoreflect.FullName]*plan
}

// NewSupport returns a checker that knows no message type yet.
func NewSupport() *Support { return &Support{plans: make(map[protoreflect.FullName]*plan)} }

// plan says which fields of a message type are to be looked at.
type plan struct {
	fields []planned
	// matters is false when nothing below the type is refused or only stored.
	matters bool
}

type planned struct {
	fd      protoreflect.FieldDescriptor
	support optionsv1.Support
	// zero says what the field's zero value asks for.
	zero   optionsv1.Zero
	inline bool
	// warning is said of a field that is only kept.
	warning string
	below   *plan
}

// special are the warnings of fields that are only kept and have an effect all the same.
var special = func() map[protoreflect.FullName]string {
	const volume, persistent = "monoplane.core.v1.VolumeSource.", "monoplane.core.v1.PersistentVolumeSource."
	texts := map[protoreflect.FullName]string{}
	for _, driver := range []protoreflect.FullName{
		"gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "iscsi", "glusterfs", "rbd", "flexVolume", "cinder",
		"cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk",
		"portworxVolume", "scaleIO", "storageos",
	} {
		texts[volume+driver], texts[persistent+driver] = driverText, driverText
	}
	return texts
}()

// limited is what the generator gives messages that have fields which are not fully supported.
type limited interface{ SetsLimited() bool }

// Unsupported walks o and returns a cause for each field that is set and REFUSED, and a warning for each that is set
// and STORED. A field is set when it holds more than its zero value, or a zero that asks for something. Call it with
// what the client sent, before defaults.
func (s *Support) Unsupported(o object.Object) (refused []apierrors.Cause, stored []string) {
	if l, ok := o.(limited); ok && !l.SetsLimited() {
		return nil, nil
	}
	w := s.walk(o)
	return w.refused.Causes(), w.stored
}

func (s *Support) walk(m proto.Message) *walker {
	w := &walker{refused: Faults{names: true}}
	r := m.ProtoReflect()
	if p := s.planOf(r.Descriptor()); p.matters && r.IsValid() {
		w.message(r, p, nil)
	}
	return w
}

// maxWarnings is the most warnings for one object.
const maxWarnings = 50

type walker struct {
	refused Faults
	stored  []string
}

func (w *walker) message(m protoreflect.Message, p *plan, path *Path) {
	for _, f := range p.fields {
		if !m.Has(f.fd) {
			continue
		}
		v, at := m.Get(f.fd), path
		switch name := string(f.fd.Name()); {
		case f.inline:
		case path == nil:
			at = w.refused.Root(name)
		default:
			at = path.Child(name)
		}
		switch f.support {
		case optionsv1.Support_REFUSED:
			if f.zero == optionsv1.Zero_ZERO_ASKS || isSet(f.fd, v) {
				w.refused.Forbidden(at, refusedText)
			}
			continue
		case optionsv1.Support_STORED:
			if isSet(f.fd, v) && len(w.stored) < maxWarnings {
				w.stored = append(w.stored, at.String()+f.warning)
			}
			continue
		}
		switch {
		case f.fd.IsMap():
			// Maps hold quantities and strings only; nothing in them has an option.
		case f.fd.IsList():
			for i := range v.List().Len() {
				w.message(v.List().Get(i).Message(), f.below, at.Index(i))
			}
		default:
			w.message(v.Message(), f.below, at)
		}
	}
}

// isSet says whether a value that is present is more than nothing. A message that Kubernetes points to is
// set even when it is empty, like "emptyDir: {}"; one that it embeds is set when anything in it is.
func isSet(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	switch {
	case fd.IsList():
		return v.List().Len() > 0
	case fd.IsMap():
		return v.Map().Len() > 0
	case fd.Message() == nil:
		return !v.Equal(fd.Default())
	case !semantic.ByValue(fd):
		return true
	}
	set := false
	v.Message().Range(func(below protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		set = isSet(below, v)
		return !set
	})
	return set
}

// planOf returns the plan for a message type, from the cache or newly made.
func (s *Support) planOf(d protoreflect.MessageDescriptor) *plan {
	s.mu.RLock()
	p := s.plans[d.FullName()]
	s.mu.RUnlock()
	if p != nil {
		return p
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.build(d)
}

// build makes the plan of d and of all types below it. A type that contains itself is put into the cache
// before its fields are looked at; it is then taken to matter.
func (s *Support) build(d protoreflect.MessageDescriptor) *plan {
	if p := s.plans[d.FullName()]; p != nil {
		return p
	}
	p := &plan{matters: true}
	s.plans[d.FullName()] = p
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		f := planned{fd: fd, inline: semantic.Inline(fd)}
		f.warning = cmp.Or(special[fd.FullName()], storedText)
		f.support, _ = proto.GetExtension(fd.Options(), optionsv1.E_Support).(optionsv1.Support)
		f.zero, _ = proto.GetExtension(fd.Options(), optionsv1.E_Zero).(optionsv1.Zero)
		if f.support == optionsv1.Support_REFUSED || f.support == optionsv1.Support_STORED {
			p.fields = append(p.fields, f)
			continue
		}
		if fd.Message() == nil || fd.IsMap() {
			continue
		}
		if f.below = s.build(fd.Message()); f.below.matters {
			p.fields = append(p.fields, f)
		}
	}
	p.matters = len(p.fields) > 0
	return p
}
