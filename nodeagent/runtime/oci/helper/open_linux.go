package helper

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Open unpacks the helper into memory and returns it as a sealed file, which nobody can change any more. Whoever has
// it open can execute it; it is freed when nobody has. It takes about 50 ms of CPU.
func Open() (*os.File, error) {
	packed, err := files.Open(name)
	if err != nil {
		return nil, ErrMissing
	}
	defer packed.Close()
	text, err := gzip.NewReader(packed)
	if err != nil {
		return nil, fmt.Errorf("the program that makes containers: %w", err)
	}
	fd, err := memfd()
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "monoplane-oci")
	if _, err := io.Copy(f, text); err != nil {
		f.Close()
		return nil, fmt.Errorf("the program that makes containers cannot be put in memory: %w", err)
	}
	if err := seal(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("the program that makes containers cannot be sealed: %w", err)
	}
	// Through a descriptor for reading only, as a program must be to be executed.
	out, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	f.Close()
	return out, err
}

// memfd makes a file in memory that can be executed, which the setting vm.memfd_noexec may forbid.
func memfd() (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("monoplane-oci", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3 knows no MFD_EXEC.
		fd, err = unix.MemfdCreate("monoplane-oci", flags)
	}
	if err != nil {
		err = fmt.Errorf("the program that makes containers cannot be put in memory: %w", err)
	}
	return fd, err
}

// sealTries is how often a file is sealed that the kernel says is busy. It waits for a fraction of a second each time.
const sealTries = 20

// seal has nobody change a file in memory any more. The kernel refuses it as busy while it works on the pages itself,
// such as to find out which are used.
func seal(f *os.File) (err error) {
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	for range sealTries {
		if _, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	return err
}
