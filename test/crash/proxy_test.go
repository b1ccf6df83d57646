package crash

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The frames of a shim's socket: a length of four bytes, which counts what follows, four of the call, one of the type.
const (
	frameLength = 4
	frameType   = 8
	replyType   = 0x80
	largest     = 8 << 20
)

// proxy stands between the agent and the shim of one sandbox: it has put a socket of its own in the place of the
// shim's. Only connections made after that pass through it, which is why it is set up while there is no server.
type proxy struct {
	path, real string
	listener   *net.UnixListener
	trouble    *atomic.Int64 // one out of how many frames meets trouble; 0 for none
	injected   *atomic.Int64 // counts
	late       time.Duration // the longest delay
	wg         sync.WaitGroup
	mu         sync.Mutex
	conns      map[net.Conn]bool // nil when the proxy is closed
}

const (
	socketName = "sock"
	movedName  = "sock.real"
)

// interpose sets up the proxy of a sandbox's directory.
func interpose(dir string, late time.Duration, trouble, injected *atomic.Int64) (*proxy, error) {
	p := &proxy{
		path: filepath.Join(dir, socketName), real: filepath.Join(dir, movedName),
		late: late, trouble: trouble, injected: injected, conns: map[net.Conn]bool{},
	}
	if err := os.Rename(p.path, p.real); err != nil {
		return nil, err
	}
	var err error
	if p.listener, err = listenUnix(p.path); err != nil {
		return nil, errors.Join(err, os.Rename(p.real, p.path))
	}
	p.wg.Go(p.accept)
	return p, nil
}

// A socket's path has 107 bytes at most, and a sandbox's directory is long: it is reached through a descriptor.
func through(path string, f func(short string) error) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return f(filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path)))
}

func listenUnix(path string) (l *net.UnixListener, err error) {
	err = through(path, func(short string) error {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		return err
	})
	if err == nil {
		l.SetUnlinkOnClose(false) // the path is another one by then
	}
	return l, err
}

func dialUnix(path string) (c net.Conn, err error) {
	err = through(path, func(short string) error {
		c, err = net.DialTimeout("unix", short, 5*time.Second)
		return err
	})
	return c, err
}

func (p *proxy) accept() {
	for {
		agent, err := p.listener.Accept()
		if err != nil {
			return
		}
		shim, err := dialUnix(p.real)
		if err != nil {
			_ = agent.Close()
			continue
		}
		if !p.keep(agent, shim) {
			return
		}
		p.wg.Go(func() { p.carry(shim, agent); p.drop(agent, shim) })
		p.wg.Go(func() { p.carry(agent, shim); p.drop(agent, shim) })
	}
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.conns == nil {
			_ = c.Close()
			continue
		}
		p.conns[c] = true
	}
	return p.conns != nil
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // once more does no harm
		delete(p.conns, c)
	}
}

// carry hands frames on. Trouble is: a delay, an answer that is lost, one that is given twice, a request that arrives
// and whose connection breaks before the answer.
func (p *proxy) carry(from, to net.Conn) {
	for {
		frame, err := readFrame(from)
		if err != nil {
			return
		}
		reply := frame[frameType] == replyType
		times, broken := 1, false
		if oneOf := p.trouble.Load(); oneOf > 0 && rand.Int64N(oneOf) == 0 {
			p.injected.Add(1)
			switch n := rand.IntN(4); {
			case n == 0 && reply:
				times = 2
			case n == 1 && reply:
				times, broken = 0, true
			case n == 2 && !reply:
				broken = true
			default:
				time.Sleep(time.Duration(rand.Int64N(int64(p.late))))
			}
		}
		for range times {
			if _, err := to.Write(frame); err != nil {
				return
			}
		}
		if broken {
			return
		}
	}
}

func readFrame(r io.Reader) ([]byte, error) {
	frame := make([]byte, frameLength, 64)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	n := uint32(frame[0]) | uint32(frame[1])<<8 | uint32(frame[2])<<16 | uint32(frame[3])<<24
	if n <= frameType-frameLength || n > largest {
		return nil, errors.New("not a frame")
	}
	frame = append(frame, make([]byte, n)...)
	_, err := io.ReadFull(r, frame[frameLength:])
	return frame, err
}

// close gives the shim its socket back.
func (p *proxy) close() {
	_ = os.Rename(p.real, p.path) // the sandbox may have gone
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.wg.Wait()
}

// The proxy hands on what it gets, whole and in order, and breaks what it should.
func TestProxy(t *testing.T) {
	dir := t.TempDir()
	shim, err := listenUnix(filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	defer shim.Close()
	go func() { // answers each request with its own bytes
		for {
			c, err := shim.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for {
					f, err := readFrame(c)
					if err != nil {
						return
					}
					f[frameType] = replyType
					if _, err := c.Write(f); err != nil {
						return
					}
				}
			}()
		}
	}()
	var trouble, injected atomic.Int64
	p, err := interpose(dir, 10*time.Millisecond, &trouble, &injected)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(c net.Conn, call byte) error {
		if _, err := c.Write([]byte{7, 0, 0, 0, call, 0, 0, 0, 3, 'x', 'y'}); err != nil {
			return err
		}
		f, err := readFrame(c)
		if err == nil && (f[4] != call || len(f) != 11 || string(f[9:]) != "xy") {
			t.Errorf("the answer to %d is %q", call, f)
		}
		return err
	}
	c, err := dialUnix(filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for call := range byte(50) {
		if err := ask(c, call); err != nil {
			t.Fatal(err)
		}
	}
	trouble.Store(1)
	for call := byte(0); ; call++ {
		if _, err := c.Write([]byte{5, 0, 0, 0, call, 0, 0, 0, 3}); err != nil {
			break // lost, as it should be at some time
		}
		if _, err := readFrame(c); err != nil {
			break
		}
	}
	if injected.Load() == 0 {
		t.Error("no trouble was counted")
	}
	p.close()
	trouble.Store(0)
	c, err = dialUnix(filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := ask(c, 1); err != nil {
		t.Errorf("without the proxy: %v", err)
	}
}
