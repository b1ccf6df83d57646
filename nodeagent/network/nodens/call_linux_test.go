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
	go func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := wire.Receive(conn, &wire.Request{}); err != nil {
					return
				}
				time.Sleep(patience + patience/2) // It loads.
				_ = wire.Send(conn, &wire.Reply{})
			}()
		}
	}()
	dir, err := os.Open(path)
	check(t, err)
	defer dir.Close()
	if err := nodens.Call(t.Context(), dir, patience, &wire.Request{Setup: &wire.Setup{}}); err != nil {
		t.Error(err)
	}
	err = nodens.Call(t.Context(), dir, patience, &wire.Request{Attached: &wire.Attached{}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a usual answer that takes long: %v", err)
	}
}
