//go:build unix

package usage

import (
	"io/fs"
	"syscall"
)

const blockSize = 512 // of what stat counts

// blocks returns the device that a file is on, and what it takes there.
func blocks(info fs.FileInfo) (device uint64, used int64) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, info.Size()
	}
	return uint64(s.Dev), s.Blocks * blockSize //nolint:unconvert // its type differs between systems
}
