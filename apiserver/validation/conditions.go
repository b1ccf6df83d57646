package validation

import (
	"strings"

	metav1 "monoplane.dev/api/meta/v1"
)

const (
	maxReason        = 1 << 10
	maxMessage       = 1 << 15
	reasonForm       = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
	reasonMustBeWord = "a condition reason must start with alphabetic character, optionally followed by a string of " +
		"alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or " +
		"'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '" +
		reasonForm + "')"
)

// Conditions checks the conditions of a status.
func (f *Faults) Conditions(p *Path, list []*metav1.Condition) {
	seen := make(map[string]bool, len(list))
	for i, c := range list {
		at := p.Index(i)
		if seen[c.GetType()] {
			f.Duplicate(at.Child("type"), c.GetType())
		}
		seen[c.GetType()] = true
		f.condition(at, c)
	}
}

func (f *Faults) condition(p *Path, c *metav1.Condition) {
	f.Qualified(p.Child("type"), c.GetType())
	f.OneOf(p.Child("status"), c.GetStatus(), "False", "True", "Unknown")
	if n := c.GetObservedGeneration(); n < 0 {
		f.InvalidValue(p.Child("observedGeneration"), n, "must be greater than or equal to zero")
	}
	if IsZero(c.GetLastTransitionTime()) {
		f.Required(p.Child("lastTransitionTime"), "")
	}
	reason := p.Child("reason")
	switch {
	case c.GetReason() == "":
		f.Required(reason, "")
	case !isReason(c.GetReason()):
		f.Invalid(reason, c.GetReason(), reasonMustBeWord)
	}
	if len(c.GetReason()) > maxReason {
		f.TooLong(reason, maxReason)
	}
	if len(c.GetMessage()) > maxMessage {
		f.TooLong(p.Child("message"), maxMessage)
	}
}

// isReason says whether s, which is not empty, has the form of a reason.
func isReason(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	const word = letters + "0123456789_"
	return strings.IndexByte(letters, s[0]) >= 0 && strings.IndexByte(word, s[len(s)-1]) >= 0 &&
		strings.Trim(s, word+",:") == ""
}
