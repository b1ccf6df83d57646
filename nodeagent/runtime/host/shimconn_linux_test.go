package host

import (
	"net"
	"testing"
	"time"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// Whoever sees that a connection has gone knows whether the shim had told before that nothing is left of its pod, also
// where the caller has not come to read that answer yet.
func TestOrderlyEndIsKnownFirst(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "it starts nothing")
	for call, want := range map[shimwire.Type]bool{shimwire.Shutdown: true, shimwire.Stop: false} {
		ours, theirs, err := socketPair()
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		u, err := net.FileConn(ours)
		if err != nil {
			t.Fatal(err)
		}
		ours.Close()
		conn := newShimConn(u.(*net.UnixConn), time.Second)
		go conn.read(func(shimwire.Container) {})
		go func() { _, _ = conn.call(t.Context(), call, nil) }()
		f, err := shimwire.ReadFrame(theirs)
		if err != nil {
			t.Fatal(err)
		}
		_, err = theirs.Write(shimwire.AppendFrame(nil, shimwire.Frame{Call: f.Call, Type: shimwire.Reply}))
		if err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		<-conn.done
		if conn.orderly != want {
			t.Errorf("call %d: orderly is %v", call, conn.orderly)
		}
	}
}
