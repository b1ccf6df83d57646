package machinekey

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"monoplane.dev/internal/datadir"
)

// A disk that takes nothing more just when the key is made does not leave half a key: the next start makes one.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	dir, err := datadir.Make(path)
	if err != nil {
		t.Fatal(err)
	}
	refuse := func() {
		t.Helper()
		var was syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Fatal(err)
		}
		// From now on the kernel refuses every byte of a file, as a full disk does.
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 0, Max: was.Max}); err != nil {
			t.Fatal(err)
		}
		_, _, ensured := Ensure(dir)
		_, saved := Save(dir, Key{Value: "x", Owner: "x"})
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Fatal(err)
		}
		if have, err := dir.Exists(Name); err != nil || saved == nil || !have && ensured == nil {
			t.Errorf("it was written all the same: %v, %v; there is a key: %v, %v", ensured, saved, have, err)
		}
	}
	refuse()
	if left, err := os.ReadDir(path); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	first, fresh := ensure(t, path)
	if !fresh || first.Copied != "" {
		t.Errorf("after room was made: %+v, fresh %v", first, fresh)
	}
	refuse()
	if again, fresh := ensure(t, path); fresh || again != first {
		t.Errorf("the key was %+v, and is %+v, fresh %v", first, again, fresh)
	}
}
