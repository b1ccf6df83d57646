//go:build !linux

package quota

import "errors"

// New is errors.ErrUnsupported.
func New(string) (Project, error) { return 0, errors.ErrUnsupported }

// Add is errors.ErrUnsupported.
func (Project) Add(string) error { return errors.ErrUnsupported }

// Limit is errors.ErrUnsupported.
func (Project) Limit(string, int64) error { return errors.ErrUnsupported }
