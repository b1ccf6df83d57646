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

// faults collects what is wrong with an object. Equal faults are kept once.
type faults struct {
	list []apierrors.Cause
	seen map[apierrors.Cause]struct{}
	more bool
	n    int
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

func (f *faults) add(e *field.Error) {
	f.n++
	if len(f.list) >= MaxCauses {
		f.more = true
		return
	}
	if s, ok := e.BadValue.(string); ok {
		e.BadValue = shorten(s)
	}
	c := apierrors.Cause{Type: string(e.Type), Field: e.Field, Message: shorten(e.ErrorBody())}
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

func (f *faults) required(p *field.Path, detail string) { f.add(field.Required(p, detail)) }

func (f *faults) forbidden(p *field.Path, detail string) { f.add(field.Forbidden(p, detail)) }

func (f *faults) duplicate(p *field.Path, value any) { f.add(field.Duplicate(p, value)) }

func (f *faults) notFound(p *field.Path, value string) { f.add(field.NotFound(p, value)) }

func (f *faults) tooLong(p *field.Path, limit int) { f.add(field.TooLong(p, "", limit)) }

func (f *faults) invalid(p *field.Path, value any, details ...string) {
	for _, d := range details {
		f.add(field.Invalid(p, value, d))
	}
}

// oneOf says that value is not one of those supported, unless it is. Lists are given in the order in which
// Kubernetes names them.
func (f *faults) oneOf(p *field.Path, value string, supported ...string) {
	if !slices.Contains(supported, value) {
		f.add(field.NotSupported(p, value, supported))
	}
}

// requiredOneOf is oneOf for a field that may not be empty.
func (f *faults) requiredOneOf(p *field.Path, value string, supported ...string) {
	if value == "" {
		f.required(p, "")
		return
	}
	f.oneOf(p, value, supported...)
}

// notNegative refuses numbers below zero.
func (f *faults) notNegative(p *field.Path, n int64) {
	if n < 0 {
		f.invalid(p, n, "must be greater than or equal to 0")
	}
}

// positive refuses numbers below one.
func (f *faults) positive(p *field.Path, n int64) {
	if n <= 0 {
		f.invalid(p, n, "must be greater than zero")
	}
}

// sorted returns the keys of m in order, so that faults come in the same order every time.
func sorted[V any](m map[string]V) []string {
	if len(m) == 0 {
		return nil
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// joined returns the messages as one, as Kubernetes writes them where a field gets a single fault.
func joined(msgs []string) string { return strings.Join(msgs, ";") }
