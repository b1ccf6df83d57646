package static

import (
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// Notify calls changed, on a goroutine of its own, whenever something in the directory, or the file that dir names,
// has changed, until stop is called. For Config.
func Notify(dir string, changed func()) (stop func(), err error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		dir = filepath.Dir(dir) // editors replace files
	}
	if err := w.Add(dir); err != nil {
		_ = w.Close()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case _, ok := <-w.Events:
				if !ok {
					return
				}
				changed()
			case _, ok := <-w.Errors: // events were lost
				if !ok {
					return
				}
				changed()
			}
		}
	}()
	return func() { _ = w.Close(); <-done }, nil
}
