// Package apiserver is one that others must not import.
package apiserver

// Answer is deprecated.
//
// Deprecated: there is no question.
const Answer = 42

// Logf formats as fmt.Printf does, and prints nothing.
func Logf(format string, args ...any) string { return Sprint(format, args...) }
