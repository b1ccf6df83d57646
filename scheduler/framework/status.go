package framework

import "strings"

// Code says what a plugin's answer means, and what happens next.
type Code int

// The codes.
const (
	// Success lets things go on. A nil *Status is Success.
	Success Code = iota
	// Unschedulable refuses; the pod waits for an event that could help. Removing pods (preemption) might help, too.
	Unschedulable
	// Unresolvable refuses, and removing pods cannot help.
	Unresolvable
	// Wait is for Permit: the pod waits for a decision that comes later.
	Wait
	// Skip is for PreFilter and PreScore: the plugin has nothing to say about this pod and is left out of this decision.
	Skip
	// Error is a failure that says nothing about the pod; it is tried again after a back-off.
	Error
)

var codeNames = [...]string{"Success", "Unschedulable", "Unresolvable", "Wait", "Skip", "Error"}

// String returns the code's name.
func (c Code) String() string {
	if c < 0 || int(c) >= len(codeNames) {
		return "unknown"
	}
	return codeNames[c]
}

// Status is a plugin's answer. Statuses are immutable; plugins make theirs once and return them many times.
type Status struct {
	code    Code
	reasons []string
	plugin  string
	err     error
}

// NewStatus returns a status with the reasons that users will read, each of which fits "N <reason>".
func NewStatus(code Code, plugin string, reasons ...string) *Status {
	return &Status{code: code, plugin: plugin, reasons: reasons}
}

// AsError returns a status for an error.
func AsError(plugin string, err error) *Status {
	return &Status{code: Error, plugin: plugin, reasons: []string{err.Error()}, err: err}
}

// Code returns the code; Success for nil.
func (s *Status) Code() Code {
	if s == nil {
		return Success
	}
	return s.code
}

// Plugin returns the name of the plugin that answered.
func (s *Status) Plugin() string {
	if s == nil {
		return ""
	}
	return s.plugin
}

// Reasons returns what users read. The slice must not be changed.
func (s *Status) Reasons() []string {
	if s == nil {
		return nil
	}
	return s.reasons
}

// Message returns the reasons as one text.
func (s *Status) Message() string { return strings.Join(s.Reasons(), ", ") }

// IsSuccess says whether things go on.
func (s *Status) IsSuccess() bool { return s.Code() == Success }

// IsRejected says whether the pod or node was refused, as opposed to a failure.
func (s *Status) IsRejected() bool { return s.Code() == Unschedulable || s.Code() == Unresolvable }

// Err returns the error of an Error status, or one made of the reasons of any other but Success.
func (s *Status) Err() error {
	if s.IsSuccess() {
		return nil
	}
	if s.err != nil {
		return s.err
	}
	return statusError(s.Message())
}

type statusError string

func (e statusError) Error() string { return string(e) }
