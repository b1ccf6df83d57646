package machinekey

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Types of file systems that golang.org/x/sys does not name.
const (
	zfsMagic      = 0x2fc12fc1
	bcachefsMagic = 0xca451a4e
)

// placeOf finds out where a file is.
func placeOf(f *os.File) (place, error) {
	file, err := fileID(f)
	return place{
		File: file, Machine: hashOf("machine-id", "/etc/machine-id"), Product: hashOf("product-uuid",
			"/sys/class/dmi/id/product_uuid"),
	}, err
}

// fileID is what no other file has, and what a file keeps as long as it is: inode numbers are used again, but not
// together with the time at which the file came to be, which nobody can set.
func fileID(f *os.File) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return "", os.NewSyscallError("statx", err)
	}
	var fsys unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fsys); err != nil {
		return "", os.NewSyscallError("fstatfs", err)
	}
	id := fmt.Sprintf("inode %d", st.Ino)
	born := st.Mask&unix.STATX_BTIME != 0
	if born {
		id += fmt.Sprintf(", born %d.%09d", st.Btime.Sec, st.Btime.Nsec)
	}
	switch uint32(fsys.Type) {
	case unix.BTRFS_SUPER_MAGIC, zfsMagic, bcachefsMagic:
		// A snapshot of a volume has the files of the volume, down to inode and birth, but a number of its own.
		id += fmt.Sprintf(", volume %x", fsys.Fsid.Val)
	default:
		if !born {
			// The number of a device may change when the machine restarts, so that it counts only where there is no better.
			id += fmt.Sprintf(", device %d:%d", st.Dev_major, st.Dev_minor)
		}
	}
	return id, nil
}

// hashOf returns a hash of what a file says, since others than this program use it as a secret; empty when the file
// cannot be read or says nothing.
func hashOf(what, path string) string {
	text, err := os.ReadFile(path)
	id := strings.TrimSpace(string(text))
	if err != nil || id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("monoplane " + what + " " + id))
	return hex.EncodeToString(sum[:16])
}
