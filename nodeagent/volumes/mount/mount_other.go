//go:build !linux

package mount

import (
	"context"
	"os"
)

// Tmpfs is for Linux alone.
func Tmpfs(string, int64) error { return ErrNotPermitted }

// HugePages is for Linux alone.
func HugePages(string, int64, int64) error { return ErrNotPermitted }

// Bind is for Linux alone.
func Bind(*os.File, string) error { return ErrNotPermitted }

// Unmount is for Linux alone.
func Unmount(string) error { return ErrNotPermitted }

// Below returns nothing, since nothing was mounted.
func Below(string) ([]string, error) { return nil, nil }

// Is reports false, since nothing was mounted.
func Is(string) (bool, error) { return false, nil }

// UnmountAll does nothing, since nothing was mounted.
func UnmountAll(string) error { return nil }

// Remove removes dir and all in it.
func Remove(_ context.Context, dir string) error { return os.RemoveAll(dir) }
