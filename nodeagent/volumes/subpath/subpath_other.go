//go:build !linux

package subpath

import (
	"errors"
	"os"
)

// Open is for Linux alone.
func Open(string, string) (*os.File, error) { return nil, errors.ErrUnsupported }
