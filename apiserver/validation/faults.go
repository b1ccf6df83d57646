package validation

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apierrors"
)

const (
	// MaxCauses is the most faults that are listed for one object; one more says that there are others.
	MaxCauses = 1000
	// maxShown is the most bytes of a bad value that a message repeats.
	maxShown = 1024
)

// Faults collects what is wrong with an object. Equal faults are kept once. The checks run in passes:
//
//	f := &validation.Faults{}
//	for f.Pass() {
//		f.CoreMeta(o.GetMetadata(), nil, true, validation.NameIsSubdomain)
//		if o.GetSpec().GetSize() < 0 {
//			f.InvalidValue(f.Root("spec").Child("size"), o.GetSpec().GetSize(), "must not be negative")
//		}
//	}
//	return f.Causes()
//
// What is between the braces must find the same in each pass. Methods that are named after a fault (Required,
// Forbidden, Invalid) add it; those that are named after a part of an object (Labels, CoreMeta, Amount) look at that
// part, and add whatever is wrong with it at a path. The zero value is ready to use, by one goroutine.
type Faults struct {
	list []apierrors.Cause
	seen map[apierrors.Cause]struct{}
	more bool
	n    int
	// passes counts the passes so far; names is set in the one that collects.
	passes int
	names  bool
}

// Pass says whether the checks are to run (again). The first pass only finds out whether anything is wrong at
// all, without names or messages, which take most of the time; only an object with faults sees a second one.
func (f *Faults) Pass() bool {
	f.passes++
	if f.passes == 1 {
		return true
	}
	if f.names || f.n == 0 {
		return false
	}
	f.names, f.n = true, 0
	return true
}

// Root returns the path of a field of the object itself.
func (f *Faults) Root(name string) *Path {
	if !f.names {
		return nil
	}
	return &Path{name: name}
}

// Count grows with every fault, also with those that the list leaves out.
func (f *Faults) Count() int { return f.n }

// Causes returns the faults in the order in which they were found.
func (f *Faults) Causes() []apierrors.Cause {
	if f.more {
		return append(f.list, apierrors.Cause{
			Type: string(field.ErrorTypeTooMany), Message: "Too many: further bad fields are not listed",
		})
	}
	return f.list
}

// Add adds a fault in a field. The path in e is not looked at.
func (f *Faults) Add(p *Path, e *field.Error) {
	f.n++
	if !f.names {
		return
	}
	if len(f.list) >= MaxCauses {
		f.more = true
		return
	}
	if s, ok := e.BadValue.(string); ok {
		e.BadValue = Shorten(s)
	}
	c := apierrors.Cause{Type: string(e.Type), Field: p.String(), Message: Shorten(e.ErrorBody())}
	if _, ok := f.seen[c]; ok {
		return
	}
	if f.seen == nil {
		f.seen = make(map[apierrors.Cause]struct{})
	}
	f.seen[c] = struct{}{}
	f.list = append(f.list, c)
}

// Shorten cuts text that is too long to be repeated to the client.
func Shorten(s string) string {
	if len(s) <= 2*maxShown {
		return s
	}
	cut := maxShown
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// Required says that a value is missing.
func (f *Faults) Required(p *Path, detail string) { f.Add(p, field.Required(nil, detail)) }

// Forbidden says that there may be no such value here, and why.
func (f *Faults) Forbidden(p *Path, detail string) { f.Add(p, field.Forbidden(nil, detail)) }

// Duplicate says that a value is there twice.
func (f *Faults) Duplicate(p *Path, value any) { f.Add(p, field.Duplicate(nil, value)) }

// NotFound says that a value refers to something that the object does not have.
func (f *Faults) NotFound(p *Path, value string) { f.Add(p, field.NotFound(nil, value)) }

// TooLong says that a value has more than limit bytes, or elements.
func (f *Faults) TooLong(p *Path, limit int) { f.Add(p, field.TooLong(nil, "", limit)) }

// Invalid adds a fault for each detail, of which there may be none.
func (f *Faults) Invalid(p *Path, value string, details ...string) {
	for _, d := range details {
		f.Add(p, field.Invalid(nil, value, d))
	}
}

// InvalidValue is invalid for values that are not strings, which takes an allocation even if there is no detail.
func (f *Faults) InvalidValue(p *Path, value any, details ...string) {
	for _, d := range details {
		f.Add(p, field.Invalid(nil, value, d))
	}
}

// Replaced says that a part of the object, which is now as value says, may not change.
func (f *Faults) Replaced(p *Path, value interface{ AppendJSON(b []byte) []byte }) {
	f.Add(p, field.Invalid(nil, json.RawMessage(value.AppendJSON(nil)), Immutable))
}

// OneOf says that value is not one of those supported, unless it is. Lists are given in the order in which
// Kubernetes names them.
func (f *Faults) OneOf(p *Path, value string, supported ...string) {
	if !slices.Contains(supported, value) {
		f.Add(p, field.NotSupported(nil, value, supported))
	}
}

// RequiredOneOf is oneOf for a field that may not be empty.
func (f *Faults) RequiredOneOf(p *Path, value string, supported ...string) {
	if value == "" {
		f.Required(p, "")
		return
	}
	f.OneOf(p, value, supported...)
}

// NotNegative refuses numbers below zero.
func (f *Faults) NotNegative(p *Path, n int64) {
	if n < 0 {
		f.InvalidValue(p, n, "must be greater than or equal to 0")
	}
}

// Positive refuses numbers below one.
func (f *Faults) Positive(p *Path, n int64) {
	if n <= 0 {
		f.InvalidValue(p, n, "must be greater than zero")
	}
}

// Few is room for the keys of a map that is as small as most.
type Few [8]string

// Sorted returns the keys of m in order, so that faults come in the same order every time. They are put into
// room, if they fit, which is on the caller's stack.
func Sorted[V any](room *Few, m map[string]V) []string {
	if len(m) == 0 {
		return nil
	}
	keys := room[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Joined returns the messages as one, as Kubernetes writes them where a field gets a single fault.
func Joined(msgs []string) string { return strings.Join(msgs, ";") }
