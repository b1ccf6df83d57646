package nodens_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"monoplane.dev/nodeagent/network/nodens"
	"monoplane.dev/nodeagent/network/nodens/internal/helper"
	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// A helper that takes longer than for usual answers to set its namespace up, since the kernel loads what is needed, is
// waited for, as one is not that does not answer.
func TestSetUpTakesLong(t *testing.T) {
	const patience = time.Second
	path := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(path, helper.Socket)})
	check(t, err)
	defer l.Close()
	loads, loaded := make(chan bool), make(chan bool)
	go func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				var asked wire.Request
				if _, err := wire.Receive(conn, &asked); err != nil {
					return
				}
				if asked.Setup == nil {
					_, _ = conn.Read(make([]byte, 1)) // Until whoever asks has given up.
					return
				}
				loads <- true
				<-loaded
				_ = wire.Send(conn, &wire.Reply{})
			}()
		}
	}()
	dir, err := os.Open(path)
	check(t, err)
	defer dir.Close()
	setUp := make(chan error)
	go func() { setUp <- nodens.Call(t.Context(), dir, patience, &wire.Request{Setup: &wire.Setup{}}) }()
	select {
	case <-loads:
	case err := <-setUp:
		t.Fatal(err)
	}
	err = nodens.Call(t.Context(), dir, patience, &wire.Request{Attached: &wire.Attached{}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a usual answer that takes long: %v", err)
	}
	close(loaded)
	if err := <-setUp; err != nil {
		t.Error(err)
	}
}
