package unpack

// IDRange maps Size ids of a container, from Container on, to those of the machine from Host on.
type IDRange struct{ Container, Host, Size uint32 }

// Shift maps the owners of files; empty for none.
type Shift struct{ UIDs, GIDs []IDRange }

// nobody stands for ids that are not mapped, as it does in user namespaces.
const nobody = 65534

func shifted(id uint32, ranges []IDRange) int {
	if len(ranges) == 0 {
		return int(id)
	}
	for _, want := range []uint32{id, nobody} {
		for _, r := range ranges {
			if want >= r.Container && uint64(want) < uint64(r.Container)+uint64(r.Size) {
				return int(r.Host + (want - r.Container))
			}
		}
	}
	return int(ranges[0].Host)
}

// MergeOptions are those of Merge.
type MergeOptions struct {
	// Flavour is the layers'.
	Flavour Flavour
	// Owners keeps the owners of files, shifted.
	Owners bool
	Shift  Shift
	// Reserve is how many bytes are to stay available on the disk.
	Reserve int64
}
