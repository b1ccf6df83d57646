package subids_test

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/internal/userids"
	"monoplane.dev/nodeagent/images/unpack"
	"monoplane.dev/nodeagent/subids"
)

// A process that does a task lives on when threads of this program end. The kernel takes the end of the thread that
// started it for the end of the program.
func TestThreadsEnd(t *testing.T) {
	dir := t.TempDir()
	archive, to := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := subids.Tar(t.Context(), userids.Single(), dir, archive, unpack.Options{Bytes: 1 << 20, Entries: 10})
		archive.CloseWithError(err)
		done <- err
	}()
	w := tar.NewWriter(to)
	err := w.WriteHeader(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o644, Size: 4})
	if errors.Is(err, subids.ErrIDs) {
		t.Skip("this machine gives nobody a user namespace:", err)
	}
	endThreads(t) // The process is there, and waits for the rest.
	_, _ = w.Write([]byte("text"))
	_ = w.Close()
	_ = to.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(text) != "text" {
		t.Errorf("unpacked were %q, %v", text, err)
	}
}

// endThreads ends the threads that have nothing to do.
func endThreads(t *testing.T) {
	t.Helper()
	const many = 100
	var here, gone sync.WaitGroup
	here.Add(many)
	threads := make([]int, many)
	for i := range many {
		gone.Go(func() {
			runtime.LockOSThread() // For good: the thread ends with this function.
			threads[i] = unix.Gettid()
			here.Done()
			here.Wait()
		})
	}
	gone.Wait()
	for _, id := range threads {
		for end := time.Now().Add(time.Minute); id != os.Getpid() && unix.Tgkill(os.Getpid(), id, 0) == nil; {
			if time.Now().After(end) {
				t.Fatalf("thread %d does not end", id)
			}
			<-time.After(time.Millisecond)
		}
	}
}
