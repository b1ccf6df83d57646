package gate_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"monoplane.dev/apiserver/gate"
	"monoplane.dev/apiserver/pki"
)

// pipes is a listener without a network: its connections are pipes from addresses that the test picks.
type pipes struct {
	conns  chan net.Conn
	errs   chan error
	closed chan struct{}
	// accepts counts the calls of Accept.
	accepts atomic.Int64
}

func newPipes() *pipes {
	return &pipes{conns: make(chan net.Conn, 1000), errs: make(chan error, 1000), closed: make(chan struct{})}
}

func (p *pipes) Accept() (net.Conn, error) {
	p.accepts.Add(1)
	select {
	case err := <-p.errs:
		return nil, err
	default:
	}
	select {
	case c := <-p.conns:
		return c, nil
	case err := <-p.errs:
		return nil, err
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// from is a connection with an address.
type from struct {
	net.Conn
	addr net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.addr }

// dial returns the client's end of a new connection.
func (p *pipes) dial(ip string) net.Conn {
	client, server := net.Pipe()
	p.conns <- from{server, &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}
	return client
}

// world is a gate in a bubble of virtual time.
type world struct {
	t        *testing.T
	bundle   *pki.Bundle
	pipes    *pipes
	gate     *gate.Listener
	accepted chan *tls.Conn
}

func newWorld(t *testing.T, limits gate.Limits) *world {
	t.Helper()
	bundle, err := pki.Ensure(filepath.Join(t.TempDir(), "pki"), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, bundle: bundle, pipes: newPipes(), accepted: make(chan *tls.Conn, 1000)}
	w.gate = gate.Listen(w.pipes, gate.Config{
		TLS: bundle.ServerTLS(), Limits: limits, Logger: slog.New(slog.DiscardHandler),
		Known: func(s *tls.ConnectionState) bool {
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
				Roots: bundle.ClientCAs(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			})
			return err == nil
		},
	})
	t.Cleanup(func() {
		if err := w.gate.Close(); err != nil {
			t.Error(err)
		}
		for len(w.accepted) > 0 {
			_ = (<-w.accepted).NetConn().Close()
		}
	})
	accepting := w.gate // the test may take another
	go func() {
		for {
			c, err := accepting.Accept()
			if err != nil {
				return
			}
			w.accepted <- c.(*tls.Conn)
		}
	}()
	return w
}

// client makes the handshake on a connection, with the administrator's certificate or without any.
func (w *world) client(conn net.Conn, admin bool) (*tls.Conn, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.bundle.CA())
	cfg := &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{"h2"}}
	if admin {
		id := w.bundle.Admin()
		pair, err := tls.X509KeyPair(id.Cert, id.Key)
		if err != nil {
			w.t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	c := tls.Client(conn, cfg)
	return c, c.HandshakeContext(w.t.Context())
}

// connect makes a connection that must come through, and returns both ends.
func (w *world) connect(ip string, admin bool) (client, server *tls.Conn) {
	w.t.Helper()
	client, err := w.client(w.pipes.dial(ip), admin)
	if err != nil {
		w.t.Fatal(err)
	}
	return client, <-w.accepted
}

// closed says whether the server has closed a connection, once all that goes on now is over.
func closed(c net.Conn) bool {
	gone := make(chan bool, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		gone <- err != nil
	}()
	synctest.Wait()
	select {
	case v := <-gone:
		return v
	default:
		_ = c.SetReadDeadline(time.Now()) // ends the goroutine
		<-gone
		_ = c.SetReadDeadline(time.Time{})
		return false
	}
}

const local, far = "127.0.0.1", "192.0.2.7"

// Connections without credentials have their time, whatever they do with it.
//
// spec: SEC-2
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.Limits{})
		silent := w.pipes.dial(local)
		greeted, _ := w.connect(local, false)
		known, _ := w.connect(local, true)
		token, server := w.connect(local, false)
		server.NetConn().(*gate.Conn).Authenticated()

		time.Sleep(10*time.Second - time.Millisecond)
		if closed(silent) {
			t.Error("the handshake had no time")
		}
		time.Sleep(time.Millisecond)
		if !closed(silent) {
			t.Error("a client that says nothing is connected after the time for its handshake")
		}
		time.Sleep(5*time.Second - 2*time.Millisecond)
		if closed(greeted) {
			t.Error("no time for a request")
		}
		time.Sleep(10 * time.Millisecond)
		if !closed(greeted) {
			t.Error("a client without credentials is connected after its time")
		}
		time.Sleep(time.Hour)
		if closed(known) || closed(token) {
			t.Error("an authenticated client was cut off")
		}
	})
}

// Whoever does nothing makes room for those who come later, at once; others have had a little time first.
// Authenticated clients stay, however many come.
//
// spec: SEC-2
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.Limits{MaxConnections: 100, MaxUnauthenticated: 4})
		known, _ := w.connect(local, true)
		busy, _ := w.connect(local, false)
		var silent []net.Conn
		for range 200 {
			silent = append(silent, w.pipes.dial(local))
		}
		begin := time.Now()
		if c, _ := w.connect(local, true); closed(c) {
			t.Error("a client with credentials did not get in")
		}
		if took := time.Since(begin); took > 200*50*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if !closed(silent[0]) {
			t.Error("the oldest silent connection is still there")
		}
		if closed(known) {
			t.Error("a client with credentials made room for others")
		}
		if time.Since(begin) < 400*time.Millisecond && closed(busy) {
			t.Error("a client that had said something went before those that had not")
		}
		for _, c := range silent {
			_ = c.Close()
		}
	})
}

// Clients that have said something have a while, and then make room, too.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.Limits{MaxUnauthenticated: 2})
		first, _ := w.connect(local, false)
		time.Sleep(100 * time.Millisecond)
		second, _ := w.connect(local, false)
		begin := time.Now()
		third, _ := w.connect(local, true)
		if took := time.Since(begin); took != 400*time.Millisecond {
			t.Errorf("room came after %v, want the rest of the oldest's time", took)
		}
		if !closed(first) || closed(second) || closed(third) {
			t.Error("not the oldest made room")
		}
	})
}

// At the limit new connections wait until another goes.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.Limits{MaxConnections: 2})
		one, _ := w.connect(local, true)
		two, server := w.connect(local, true)
		waiting := w.pipes.dial(local)
		done := make(chan error, 1)
		go func() {
			_, err := w.client(waiting, true)
			done <- err
		}()
		time.Sleep(time.Hour)
		if len(done) > 0 || closed(one) || closed(two) {
			t.Fatal("a third connection got in, or made others go")
		}
		_ = server.NetConn().Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// One address can take a part only; on loopback, which all local clients share, there is no such bound.
//
// spec: SEC-2
func TestAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := gate.Limits{MaxConnections: 8, MaxUnauthenticated: 6, MaxPerAddress: 4, MaxUnauthenticatedPerAddress: 2}
		w := newWorld(t, limits)
		var conns []*tls.Conn
		for range 2 {
			c, _ := w.connect(far, false)
			conns = append(conns, c)
		}
		if _, err := w.client(w.pipes.dial(far), true); err == nil {
			t.Error("a third connection of an address got in, while the others had their time")
		}
		if _, err := w.client(w.pipes.dial("192.0.2.8"), false); err != nil {
			t.Errorf("another address: %v", err)
		}
		time.Sleep(time.Second)
		// Its own oldest makes room now.
		if _, err := w.client(w.pipes.dial(far), true); err != nil || !closed(conns[0]) || closed(conns[1]) {
			t.Errorf("%v; the oldest of the address did not make room", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.Limits{MaxConnections: 8, MaxUnauthenticated: 6, MaxPerAddress: 2})
		for range 8 {
			w.connect(local, true)
		}
		w = newWorld(t, gate.Limits{MaxConnections: 8, MaxPerAddress: 2})
		w.connect("2001:db8::1", true)
		w.connect("2001:db8::2", true)
		if _, err := w.client(w.pipes.dial("2001:db8::3"), true); err == nil {
			t.Error("a network of 64 bits is one address")
		}
		w.connect("2001:db8:0:1::1", true)
	})
}

// What a client without credentials may send is bounded; the rest waits until it is authenticated.
//
// spec: SEC-2
func TestBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.Limits{Bytes: 32 << 10})
		client, server := w.connect(local, false)
		const all = 1 << 20
		go func() { _, _ = client.Write(make([]byte, all)) }()
		var read atomic.Int64
		done := make(chan error, 1)
		go func() {
			for b := make([]byte, 4096); ; {
				n, err := server.Read(b)
				if read.Add(int64(n)) == all || err != nil {
					done <- err
					return
				}
			}
		}()
		synctest.Wait()
		if n := read.Load(); n > 32<<10 || n < 8<<10 {
			t.Errorf("%d bytes were read of a client without credentials", n)
		}
		server.NetConn().(*gate.Conn).Authenticated()
		if err := <-done; err != nil {
			t.Error(err)
		}

		// Without, it ends.
		client, server = w.connect(local, false)
		go func() { _, _ = client.Write(make([]byte, all)) }()
		_, err := io.Copy(io.Discard, server)
		if err == nil {
			t.Error("the connection went on")
		}
	})
}

// Who is refused again and again is no client.
//
// spec: SEC-2
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.Limits{})
		client, server := w.connect(local, false)
		below := server.NetConn().(*gate.Conn)
		for range 16 {
			below.Refused()
		}
		if closed(client) {
			t.Error("closed too early")
		}
		below.Refused()
		if !closed(client) {
			t.Error("a connection of which 17 requests were refused is open")
		}
		known, server := w.connect(local, true)
		for range 100 {
			server.NetConn().(*gate.Conn).Refused()
		}
		if closed(known) {
			t.Error("an authenticated connection was closed")
		}
		var none *gate.Conn
		none.Authenticated()
		none.Refused()
	})
}

// No error of accept ends anything, or keeps a processor busy.
func TestAcceptErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.Limits{})
		known, _ := w.connect(local, true)
		for range 100 {
			w.pipes.errs <- &net.OpError{Op: "accept", Err: syscall.EMFILE}
			w.pipes.errs <- errors.New("unheard of")
		}
		before := w.pipes.accepts.Load()
		late := w.pipes.dial(local) // to wake the one that waits
		defer late.Close()
		time.Sleep(10 * time.Second)
		if n := w.pipes.accepts.Load() - before; n > 25 {
			t.Errorf("%d calls in 10 s", n)
		}
		if closed(known) {
			t.Error("a connection was cut off")
		}
		time.Sleep(time.Hour)
		if c, _ := w.connect(local, true); closed(c) {
			t.Error("nothing is accepted any more")
		}
	})
}

// Close ends the handshakes that go on, and nothing else.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.Limits{MaxConnections: 2})
		known, _ := w.connect(local, true)
		shaking, waiting := w.pipes.dial(local), w.pipes.dial(local)
		synctest.Wait()
		if err := w.gate.Close(); err != nil {
			t.Error(err)
		}
		if !closed(shaking) || !closed(waiting) || closed(known) {
			t.Error("handshakes went on, or a connection did not")
		}
		if _, err := w.gate.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept: %v", err)
		}
		w.pipes = newPipes() // for the cleanup
		w.gate = gate.Listen(w.pipes, gate.Config{Logger: slog.New(slog.DiscardHandler)})
	})
}

// Known and unknown clients can be accepted apart.
func TestParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.Limits{})
		_ = w.gate.Close() // the world's accepts all
		w.pipes = newPipes()
		w.gate = gate.Listen(w.pipes, gate.Config{TLS: w.bundle.ServerTLS(), Logger: slog.New(slog.DiscardHandler),
			Known: func(s *tls.ConnectionState) bool { return len(s.PeerCertificates) > 0 }})
		known, unknown := w.gate.Known(), w.gate.Unknown()
		accept := func(l net.Listener) <-chan net.Conn {
			out := make(chan net.Conn, 1)
			go func() {
				c, err := l.Accept()
				if err != nil {
					close(out)
					return
				}
				out <- c
			}()
			return out
		}
		for _, admin := range []bool{true, false} {
			mine, others := accept(known), accept(unknown)
			if !admin {
				mine, others = others, mine
			}
			if _, err := w.client(w.pipes.dial(local), admin); err != nil {
				t.Fatal(err)
			}
			c := <-mine
			synctest.Wait()
			if len(others) > 0 {
				t.Error("accepted by both")
			}
			_ = c.(*tls.Conn).NetConn().Close()
			_, _ = w.client(w.pipes.dial(local), !admin) // for the one that waits
			_ = (<-others).(*tls.Conn).NetConn().Close()
		}
		waiting := accept(known)
		for range 2 {
			if err := known.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, ok := <-waiting; ok {
			t.Error("accepted after the end")
		}
		still := accept(unknown)
		if _, err := w.client(w.pipes.dial(local), false); err != nil {
			t.Error(err)
		}
		_ = (<-still).(*tls.Conn).NetConn().Close()
	})
}

// listenTCP returns a gate on a real socket.
func listenTCP(t *testing.T, limits gate.Limits) (*gate.Listener, *pki.Bundle) {
	t.Helper()
	bundle, err := pki.Ensure(filepath.Join(t.TempDir(), "pki"), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := gate.Listen(inner, gate.Config{TLS: bundle.ServerTLS(), Limits: limits, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = l.Close() })
	return l, bundle
}

func dialTCP(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// Who speaks HTTP without TLS is told.
func TestPlainHTTP(t *testing.T) {
	l, _ := listenTCP(t, gate.Limits{})
	c := dialTCP(t, l)
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.0 400 Bad Request\r\n") {
		t.Errorf("%q, %v", answer, err)
	}
}

// Over HTTP an answer to a client that has not shown who it is says that it is the last one of the connection.
func TestAnonymousOverHTTP(t *testing.T) {
	l, _ := listenTCP(t, gate.Limits{})
	server := &http.Server{ConnContext: gate.ConnContext,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/known" {
				gate.From(r.Context()).Authenticated()
			}
			gate.Anonymous(r.Context(), w.Header())
		})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	c := tls.Client(dialTCP(t, l), &tls.Config{InsecureSkipVerify: true})
	answers := bufio.NewReader(c)
	get := func(path string) *http.Response {
		t.Helper()
		if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if get("/known").Close || get("/").Close {
		t.Error("a known client's connection ends with an answer")
	}
	c = tls.Client(dialTCP(t, l), &tls.Config{InsecureSkipVerify: true})
	answers = bufio.NewReader(c)
	if !get("/").Close {
		t.Error("an unknown client's connection goes on")
	}
	if _, err := answers.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last answer: %v", err)
	}
	// Outside of a gate there is no connection to speak of.
	header := http.Header{}
	gate.Anonymous(t.Context(), header)
	if len(header) > 0 {
		t.Errorf("%v", header)
	}
}

// What a client has sent and nobody has read yet counts as said: the silent one makes room, though it is younger.
func TestSilentOnASocket(t *testing.T) {
	// No handshake reads, and no time matters but that of the silent.
	l, _ := listenTCP(t, gate.Limits{MaxUnauthenticated: 2, Patience: time.Hour, HandshakeTimeout: time.Hour,
		Lifetime: time.Hour,
		Silence:  time.Millisecond})
	said := dialTCP(t, l)
	if _, err := said.Write([]byte{22}); err != nil {
		t.Fatal(err)
	}
	silent := dialTCP(t, l)
	_ = dialTCP(t, l)
	if _, err := silent.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the silent one: %v", err)
	}
	_ = said.SetDeadline(time.Now().Add(10 * time.Millisecond))
	var timeout net.Error
	if _, err := said.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("the other: %v", err)
	}
}
