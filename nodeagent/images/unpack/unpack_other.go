//go:build !linux

package unpack

import (
	"context"
	"errors"
	"io"
)

// Tar fails: layers are unpacked on Linux only.
func Tar(context.Context, string, io.Reader, Options) (Stats, error) {
	return Stats{}, errors.New("layers of images can be unpacked on Linux only")
}

// Probe returns Plain.
func Probe(string) (Flavour, error) { return Plain, nil }

// Merge fails, as Tar does.
func Merge(context.Context, string, []string, MergeOptions) error {
	return errors.New("layers of images can be unpacked on Linux only")
}

// Top fails, as Tar does.
func Top(context.Context, string, []Layer, MergeOptions) error {
	return errors.New("layers of images can be mounted on Linux only")
}

// Upper fails, as Tar does.
func Upper(string, string, Shift) error {
	return errors.New("layers of images can be mounted on Linux only")
}

// IsOwn is true: nobody else's layers are here.
func IsOwn(string) bool { return true }
