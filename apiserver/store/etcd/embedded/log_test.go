package embedded

import (
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
)

// A disk that refuses what etcd writes ends it with one error that says what to do.
func TestDiskThatRefuses(t *testing.T) {
	for cause, want := range map[error]string{
		syscall.EROFS: "read-only file system; the disk has become read-only, and nothing that was acknowledged is lost: ",
		syscall.EIO:   "input/output error; the disk fails, and what was acknowledged was on it before: ",
	} {
		f := newFailure()
		go newZap(slog.New(slog.DiscardHandler), f).Fatal("failed to save",
			zap.Error(&fs.PathError{Op: "write", Path: "wal", Err: cause}))
		<-f.done
		if err := f.get(); !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "start the server again") {
			t.Error(err)
		}
	}
}
