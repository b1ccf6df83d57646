// Package helper holds the program that makes containers (cmd/ocihelper), which is embedded in this one,
// compressed, where it was built: it needs a C compiler, and Linux.
package helper

import (
	"embed"
	"errors"
	"os"
	"sync"
)

// The directory has a README at least, so that this package always builds.
//
//go:embed embedded
var files embed.FS

// ErrMissing says that this program was built without the helper.
var ErrMissing = errors.New("this monoplane was built without the program that makes containers: `make build` " +
	"includes it where gcc libc6-dev libseccomp-dev pkg-config are installed; with DEPS=yes it installs them first")

const name = "embedded/ocihelper.gz"

// Program is the helper for those who may not need it: it is unpacked when it is asked for first. Its zero value is
// ready for use. Its methods may be called concurrently.
type Program struct {
	mu   sync.Mutex
	file *os.File
}

// File returns the helper as Open does, the same each time. It belongs to the Program.
func (p *Program) File() (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		return p.file, nil
	}
	f, err := Open()
	if err == nil {
		p.file = f
	}
	return f, err
}

// Close closes the file, if there is one. Asked for the helper again, the Program unpacks it anew.
func (p *Program) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil {
		return nil
	}
	err := p.file.Close()
	p.file = nil
	return err
}
