//go:build !linux

package helper

import (
	"errors"
	"os"
)

var errLinux = errors.New("containers of images exist on Linux only")

// Open fails.
func Open() (*os.File, error) { return nil, errLinux }

// Overlay returns why there are no containers here.
func Overlay(string, bool) error { return errLinux }

// Check returns why there are no containers here.
func Check() error { return errLinux }
