//go:build !linux

package images

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// syncFS asks the system to write everything.
func syncFS(*os.File) error {
	unix.Sync()
	return nil
}

// available returns that there is room: what is too much fails when it is written.
func available(string) (int64, error) { return math.MaxInt64, nil }
