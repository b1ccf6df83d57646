// Package unpack makes a directory of a layer: a tar whose entries nobody has vouched for.
//
// The directory is in the form that overlayfs stacks. It depends on nothing but the archive, so that layers can be
// unpacked in any order, and shared by all images that have them.
//
// Guarantees: nothing outside the directory is read or changed, whatever the names and links of the archive say; links
// in the directory are followed as if it were the root of the file system. The limits on bytes and entries hold, and
// as much room is left on the disk as was asked for. Extended attributes that would mean something to overlayfs, or to
// this machine's security modules, are dropped. Without the rights of root owners, devices and the capabilities of
// files are lost.
//
// The caller gives a new, empty directory that nobody else changes, and removes it (see RemoveAll) after an error.
package unpack

import (
	"errors"
	"fmt"
)

// Flavour is the form in which layers say what they hide. Layers that root has unpacked serve nobody else, and the
// other way round.
type Flavour string

// The flavours.
const (
	// Trusted layers have extended attributes trusted.overlay.*, which root sets and reads.
	Trusted Flavour = "trusted"
	// User layers have user.overlay.*, for overlayfs in a user namespace with the option userxattr.
	User Flavour = "user"
	// Plain layers keep the archive's own markers (.wh.NAME), because the file system can hold neither of the others.
	// overlayfs cannot stack them.
	Plain Flavour = "plain"
)

// Attribute returns the name of overlayfs's extended attribute what, such as opaque; empty for Plain.
func (f Flavour) Attribute(what string) string {
	switch f {
	case Trusted, User:
		return string(f) + ".overlay." + what
	default:
		return ""
	}
}

// The markers of an archive.
const (
	// Whiteout begins the name of an entry that says that the rest of its name was removed.
	Whiteout = ".wh."
	// Opaque is the entry that says that its directory hides what is below it.
	Opaque = ".wh..wh..opq"
)

// Options are those of one layer.
type Options struct {
	// Flavour is the form of the directory.
	Flavour Flavour
	// Owners keeps the owners of the archive, shifted, and its devices; it takes root's rights.
	Owners bool
	Shift  Shift
	// Bytes is the largest sum of the sizes of files, Entries the largest number of entries.
	Bytes, Entries int64
	// Reserve is how many bytes are to stay available on the disk.
	Reserve int64
}

// Stats says what was unpacked.
type Stats struct {
	// Bytes is the sum of the sizes of files, Entries the number of entries.
	Bytes, Entries int64
	// Skipped counts devices that could not be made without root's rights.
	Skipped int64
	// Implied are the directories that the archive has no entry for: their attributes are those of lower layers, if the
	// directory is there (see Top).
	Implied []string
	// Opaque tells that the layer hides all that is below it. overlayfs does not look whether the root of a layer does:
	// what is below is not to be stacked.
	Opaque bool
}

// Layer is an unpacked layer.
type Layer struct {
	// Dir is its directory.
	Dir string
	// Implied is that of its Stats.
	Implied []string
}

// Names counts the directories that a layer, or the layers of an image together, have without an entry for them.
type Names struct{ count, bytes int }

// Add counts one by its path; ErrTooLarge if there are too many.
func (n *Names) Add(path string) error {
	const most, mostBytes = 1 << 20, 32 << 20
	n.count++
	n.bytes += len(path)
	if n.count > most || n.bytes > mostBytes {
		return fmt.Errorf("%w: it has more than %d directories without an entry for them, or more than %d bytes of their "+
			"paths", ErrTooLarge, most, mostBytes)
	}
	return nil
}

// The kinds of errors, found with errors.Is. Others are the disk's.
var (
	// ErrHostile is that of an archive that breaks the rules.
	ErrHostile = errors.New("the archive is not a layer")
	// ErrTooLarge is that of a layer beyond the limits.
	ErrTooLarge = errors.New("the layer is too large")
	// ErrNoRoom is that of a disk that would be left too full.
	ErrNoRoom = errors.New("no room is left on the disk")
)

func hostile(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrHostile}, args...)...)
}
