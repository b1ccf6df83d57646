package wire

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Self is the program of this process, as it can be opened.
const Self = "/proc/self/exe"

// OwnProgram returns which file this process is a process of.
func OwnProgram() (Program, error) {
	var st unix.Stat_t
	if err := unix.Stat(Self, &st); err != nil {
		return Program{}, fmt.Errorf("%s, the program of this process: %w", Self, err)
	}
	return Program{Device: st.Dev, Inode: st.Ino}, nil
}
