package framework

import (
	"fmt"
	"runtime/debug"
)

// PanicError is the failure of a plugin that panicked. It ends the pod's cycle and nothing else.
type PanicError struct {
	Value any
	// Stack says where.
	Stack []byte
}

// Error names the value, not the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("a plugin panicked: %v", e.Value) }

// caught is for the value of recover; it returns nil when there was no panic.
func caught(value any) error {
	if value == nil {
		return nil
	}
	if known, ok := value.(*PanicError); ok {
		return known // of an index, which a decision has run into
	}
	return &PanicError{value, debug.Stack()}
}

// guarded runs f and returns its status, an error if it panics.
func guarded(f func() *Status) (s *Status) {
	defer func() {
		if err := caught(recover()); err != nil {
			s = AsError("", err)
		}
	}()
	return f()
}
