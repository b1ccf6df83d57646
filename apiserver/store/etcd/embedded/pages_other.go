//go:build !linux

package embedded

import "context"

// ReleasePages does nothing here: the memory of mapped files counts for nothing on other systems.
func (e *Embedded) ReleasePages(context.Context) error { return nil }
