package validation

import (
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

// faults collects what is wrong with an object. Equal faults are kept once. The checks run in passes:
//
//	var f faults
//	for f.pass() {
//		... // checks, which must find the same in each pass
//	}
//	return f.causes()
type faults struct {
	list []apierrors.Cause
	seen map[apierrors.Cause]struct{}
	more bool
	n    int
	// passes counts the passes so far; names is set in the one that collects.
	passes int
	names  bool
}

// pass says whether the checks are to run (again). The first pass only finds out whether anything is wrong at
// all, without names or messages, which take most of the time; only an object with faults sees a second one.
func (f *faults) pass() bool {
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

// root returns the path of a field of the object itself.
func (f *faults) root(name string) *fieldPath {
	if !f.names {
		return nil
	}
	return &fieldPath{name: name}
}

// count grows with every fault, also with those that the list leaves out.
func (f *faults) count() int { return f.n }

// causes returns the faults in the order in which they were found.
func (f *faults) causes() []apierrors.Cause {
	if f.more {
		return append(f.list, apierrors.Cause{
			Type: string(field.ErrorTypeTooMany), Message: "Too many: further bad fields are not listed",
		})
	}
	return f.list
}

func (f *faults) add(p *fieldPath, e *field.Error) {
	f.n++
	if !f.names {
		return
	}
	if len(f.list) >= MaxCauses {
		f.more = true
		return
	}
	if s, ok := e.BadValue.(string); ok {
		e.BadValue = shorten(s)
	}
	c := apierrors.Cause{Type: string(e.Type), Field: p.String(), Message: shorten(e.ErrorBody())}
	if _, ok := f.seen[c]; ok {
		return
	}
	if f.seen == nil {
		f.seen = make(map[apierrors.Cause]struct{})
	}
	f.seen[c] = struct{}{}
	f.list = append(f.list, c)
}

// shorten cuts text that is too long to be repeated to the client.
func shorten(s string) string {
	if len(s) <= 2*maxShown {
		return s
	}
	cut := maxShown
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

func (f *faults) required(p *fieldPath, detail string) { f.add(p, field.Required(nil, detail)) }

func (f *faults) forbidden(p *fieldPath, detail string) { f.add(p, field.Forbidden(nil, detail)) }

func (f *faults) duplicate(p *fieldPath, value any) { f.add(p, field.Duplicate(nil, value)) }

func (f *faults) notFound(p *fieldPath, value string) { f.add(p, field.NotFound(nil, value)) }

func (f *faults) tooLong(p *fieldPath, limit int) { f.add(p, field.TooLong(nil, "", limit)) }

// invalid adds a fault for each detail, of which there may be none.
func (f *faults) invalid(p *fieldPath, value string, details ...string) {
	for _, d := range details {
		f.add(p, field.Invalid(nil, value, d))
	}
}

// invalidValue is invalid for values that are not strings, which takes an allocation even if there is no detail.
func (f *faults) invalidValue(p *fieldPath, value any, details ...string) {
	for _, d := range details {
		f.add(p, field.Invalid(nil, value, d))
	}
}

// oneOf says that value is not one of those supported, unless it is. Lists are given in the order in which
// Kubernetes names them.
func (f *faults) oneOf(p *fieldPath, value string, supported ...string) {
	if !slices.Contains(supported, value) {
		f.add(p, field.NotSupported(nil, value, supported))
	}
}

// requiredOneOf is oneOf for a field that may not be empty.
func (f *faults) requiredOneOf(p *fieldPath, value string, supported ...string) {
	if value == "" {
		f.required(p, "")
		return
	}
	f.oneOf(p, value, supported...)
}

// notNegative refuses numbers below zero.
func (f *faults) notNegative(p *fieldPath, n int64) {
	if n < 0 {
		f.invalidValue(p, n, "must be greater than or equal to 0")
	}
}

// positive refuses numbers below one.
func (f *faults) positive(p *fieldPath, n int64) {
	if n <= 0 {
		f.invalidValue(p, n, "must be greater than zero")
	}
}

// few is room for the keys of a map that is as small as most.
type few [8]string

// sorted returns the keys of m in order, so that faults come in the same order every time. They are put into
// room, if they fit, which is on the caller's stack.
func sorted[V any](room *few, m map[string]V) []string {
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

// joined returns the messages as one, as Kubernetes writes them where a field gets a single fault.
func joined(msgs []string) string { return strings.Join(msgs, ";") }
