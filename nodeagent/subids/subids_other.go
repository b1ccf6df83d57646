//go:build !linux

package subids

import (
	"context"
	"io"

	"monoplane.dev/internal/userids"
	"monoplane.dev/nodeagent/diskuse"
	"monoplane.dev/nodeagent/images/unpack"
)

// Tar fails: there are such ids on Linux only.
func Tar(context.Context, userids.Maps, string, io.Reader, unpack.Options) (unpack.Stats, error) {
	return unpack.Stats{}, ErrIDs
}

// Merge fails, as Tar does.
func Merge(context.Context, userids.Maps, string, []string, unpack.MergeOptions) error { return ErrIDs }

// Top fails, as Tar does.
func Top(context.Context, userids.Maps, string, []unpack.Layer, unpack.MergeOptions) error {
	return ErrIDs
}

// Upper fails, as Tar does.
func Upper(context.Context, userids.Maps, string, string) error { return ErrIDs }

// Measure is diskuse.Of.
func Measure(ctx context.Context, _ userids.Maps, dir string) (diskuse.Size, error) {
	return diskuse.Of(ctx, dir)
}

// Give fails, as Tar does.
func Give(context.Context, userids.Maps, string, int64, bool, string) error { return ErrIDs }
