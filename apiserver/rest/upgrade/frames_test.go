package upgrade_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"monoplane.dev/apiserver/rest/upgrade"
)

// frameCounter is a connection that notes which writes are not one frame of SPDY.
type frameCounter struct {
	net.Conn

	mu     sync.Mutex
	frames int
	broken [][]byte
}

func (c *frameCounter) Write(b []byte) (int, error) {
	c.mu.Lock()
	if c.frames++; len(b) < 8 || len(b) != 8+int(binary.BigEndian.Uint32(b[4:])&0xffffff) {
		c.broken = append(c.broken, bytes.Clone(b[:min(len(b), 16)]))
	}
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// Each frame that the library writes, in however many parts, is one write; the client reads what was written.
//
// spec: CTR-9
func TestWholeFrames(t *testing.T) {
	near, far := net.Pipe()
	counter := &frameCounter{Conn: near}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pieces := make([][]byte, 50)
	for i := range pieces {
		pieces[i] = bytes.Repeat([]byte{byte(i)}, 1+random.IntN(40_000))
	}
	server, err := spdy.NewServerConnection(upgrade.NewWholeFrames(counter),
		func(s httpstream.Stream, replied <-chan struct{}) error {
			go func() {
				<-replied
				for _, b := range pieces {
					if _, err := s.Write(b); err != nil {
						t.Error(err)
					}
				}
				_ = s.Close()
			}()
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := spdy.NewClientConnection(far)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s, err := client.CreateStream(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, bytes.Join(pieces, nil)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	counter.mu.Lock()
	defer counter.mu.Unlock()
	if len(counter.broken) > 0 || counter.frames < len(pieces) {
		t.Errorf("%d writes, of which %d are not a frame: %x", counter.frames, len(counter.broken), counter.broken)
	}
}
