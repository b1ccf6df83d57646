// Package helper holds the program that makes containers (tools/ocihelper), which is embedded in this one,
// compressed, where it was built: it needs a C compiler, and Linux.
package helper

import (
	"embed"
	"errors"
)

// The directory has a README at least, so that this package always builds.
//
//go:embed embedded
var files embed.FS

// ErrMissing says that this program was built without the helper.
var ErrMissing = errors.New("this monoplane was built without the program that makes containers: `make build` " +
	"includes it where gcc, libc6-dev and libseccomp-dev are installed (`make deps`)")

const name = "embedded/ocihelper.gz"
