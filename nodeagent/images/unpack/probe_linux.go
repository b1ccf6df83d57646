package unpack

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Probe returns the flavour that this process can write in a directory.
func Probe(dir string) (Flavour, error) {
	tmp, err := os.MkdirTemp(dir, "probe-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // it is in a folder that goes with the process
	if unix.Mknod(filepath.Join(tmp, "whiteout"), unix.S_IFCHR, 0) != nil {
		return Plain, nil
	}
	for _, f := range []Flavour{Trusted, User} {
		if unix.Setxattr(tmp, f.Attribute("opaque"), []byte("y"), 0) == nil {
			return f, nil
		}
	}
	return Plain, nil
}
