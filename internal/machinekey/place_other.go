//go:build !linux

package machinekey

import (
	"fmt"
	"os"
	"syscall"
)

// placeOf finds out where a file is. Nothing but simulated pods runs on such machines.
func placeOf(f *os.File) (place, error) {
	info, err := f.Stat()
	if err != nil {
		return place{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return place{}, fmt.Errorf("what file %s is cannot be found out", f.Name())
	}
	return place{File: fmt.Sprintf("inode %d, device %d", st.Ino, st.Dev)}, nil
}
