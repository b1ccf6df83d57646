package front_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"monoplane.dev/controllers/ingress/certs"
	"monoplane.dev/controllers/ingress/front"
	"monoplane.dev/controllers/test/pipes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dial(ctx context.Context, network string, at netip.AddrPort) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, at.String())
}

// endpoint runs a server behind.
func endpoint(t *testing.T, h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

// closed returns an address where nobody listens, and nobody else can until the test ends: it is that of a client.
func closed(t *testing.T) netip.AddrPort {
	t.Helper()
	l := listen(t)
	t.Cleanup(func() { l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return netip.MustParseAddrPort(c.LocalAddr().String())
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// running is a server in front.
type running struct {
	plain, secure string
	client        *http.Client
	dial          func(ctx context.Context, network, address string) (net.Conn, error)
}

// run runs a server that leads everything to one backend, with settings that a test may change.
func run(t *testing.T, b *front.Backend, change func(*front.Config)) running {
	t.Helper()
	plain, secure := listen(t), listen(t)
	return runOn(t, b, plain, secure, running{plain.Addr().String(), secure.Addr().String(), nil,
		new(net.Dialer).DialContext}, change)
}

// inBubble runs a server that leads everything to h, in virtual time, which connections within the process live in.
func inBubble(t *testing.T, h http.HandlerFunc, f func(t *testing.T, b *front.Backend, r running)) {
	synctest.Test(t, func(t *testing.T) {
		behind := pipes.Listen("192.0.2.1:80")
		plain, secure := pipes.Listen("192.0.2.2:80"), pipes.Listen("192.0.2.2:443")
		s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
		go func() { _ = s.Serve(behind) }()
		t.Cleanup(func() { s.Close() })
		b := leading(netip.MustParseAddrPort(behind.Addr().String()))
		to := running{plain: plain.Addr().String(), secure: secure.Addr().String()}
		to.dial = func(ctx context.Context, _, address string) (net.Conn, error) {
			if address == to.secure {
				return secure.Dial(ctx)
			}
			return plain.Dial(ctx)
		}
		f(t, b, runOn(t, b, plain, secure, to, func(c *front.Config) {
			c.Dial = func(ctx context.Context, _ string, _ netip.AddrPort) (net.Conn, error) {
				return behind.Dial(ctx)
			}
		}))
	})
}

// runOn runs a server on listeners, and adds a client to what is known of them.
func runOn(
	t *testing.T, b *front.Backend, plain, secure net.Listener, to running, change func(*front.Config),
) running {
	t.Helper()
	cert, err := certs.SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	cfg := front.Config{
		Find:        func(host, _ string) (*front.Backend, bool) { return b, host != "unknown" },
		Dial:        dial,
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil },
	}
	if change != nil {
		change(&cfg)
	}
	f, err := front.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: to.dial, ForceAttemptHTTP2: true, DisableCompression: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	to.client = &http.Client{Transport: transport}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx, plain, secure) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Serve: %v", err)
		}
		transport.CloseIdleConnections()
	})
	return to
}

func leading(all ...netip.AddrPort) *front.Backend {
	b := &front.Backend{}
	b.Set(all, false)
	return b
}

// get returns the code and the body of an answer.
func (r running) get(t *testing.T, url, host string) (int, string) {
	t.Helper()
	return r.do(t, http.MethodGet, url, host, nil)
}

func (r running) do(t *testing.T, method, url, host string, body io.Reader) (int, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	q.Host = host
	answer, err := r.client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func TestAnswers(t *testing.T) {
	echo := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s%s %s", r.Method, r.Host, r.URL, body)
	})
	broken := endpoint(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for _, c := range []struct {
		backend   *front.Backend
		host      string
		code      int
		want      string
		sometimes bool
	}{
		{backend: leading(echo), host: "web.example", code: 200, want: "POST web.example/a%2Fb?c=d body"},
		{backend: leading(echo), host: "unknown", code: 404, want: "no Ingress"},
		{backend: leading(), host: "a", code: 503, want: "no endpoint of the Service is ready"},
		{backend: nil, host: "a", code: 503, want: "no endpoint of the Service is ready"},
		{backend: leading(closed(t)), host: "a", code: 502, want: "connected to"},
		{backend: leading(closed(t), closed(t), echo), host: "a", code: 200, want: "POST a/"},
		{backend: leading(broken), host: "a", code: 502, want: "as it should"},
	} {
		r := run(t, c.backend, nil)
		for _, url := range []string{"http://" + r.plain, "https://" + r.secure} {
			code, text := r.do(t, http.MethodPost, url+"/a%2Fb?c=d", c.host, strings.NewReader("body"))
			if code != c.code || !strings.Contains(text, c.want) {
				t.Errorf("%s %s: %d %q; want %d %q", c.host, url, code, text, c.code, c.want)
			}
		}
	}
}

// When a connection breaks before the answer, a request that may be made twice goes elsewhere, and no other does.
func TestBrokenConnections(t *testing.T) {
	broken := endpoint(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	var received atomic.Int32
	whole := endpoint(t, func(http.ResponseWriter, *http.Request) { received.Add(1) })
	for method, want := range map[string]int{"GET": 200, "HEAD": 200, "DELETE": 502, "POST": 502, "PATCH": 502} {
		b := leading(broken, whole)
		r := run(t, b, nil)
		codes := map[int]int{}
		for range 2 { // each of the endpoints comes first once, unless one is avoided
			code, _ := r.do(t, method, "http://"+r.plain, "a", nil)
			codes[code]++
		}
		if codes[want] == 0 || want == 200 && codes[200] != 2 {
			t.Errorf("%s: %v", method, codes)
		}
	}
	if n := received.Load(); n != 2*2+3 {
		t.Errorf("the endpoint that answers received %d requests", n)
	}
}

// What a client says about where it comes from is not believed.
func TestForwardedHeaders(t *testing.T) {
	seen := make(chan http.Header, 1)
	r := run(t, leading(endpoint(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header })), nil)
	for _, url := range []string{"http://" + r.plain, "https://" + r.secure} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Host = "web.example"
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port",
			"X-Forwarded-Prefix", "X-Real-Ip", "Forwarded"} {
			q.Header.Set(name, "forged")
		}
		q.Header.Set("X-Mine", "kept")
		answer, err := r.client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		h := <-seen
		for name, values := range h {
			if slices.Contains(values, "forged") {
				t.Errorf("%s of the client came through", name)
			}
		}
		scheme, _, _ := strings.Cut(url, ":")
		if h.Get("X-Forwarded-For") != "127.0.0.1" || h.Get("X-Forwarded-Host") != "web.example" ||
			h.Get("X-Forwarded-Proto") != scheme || h.Get("X-Mine") != "kept" {
			t.Errorf("the endpoint got %v", h)
		}
	}
}

// Clients of HTTPS speak HTTP/2, and an endpoint that asks for it does without TLS, so that both directions of a
// stream go on at once, with trailers after it.
func TestHTTP2ToEndpoints(t *testing.T) {
	s := &http.Server{Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute}
	s.Protocols.SetUnencryptedHTTP2(true)
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Status")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			fmt.Fprintf(w, "%s %s\n", r.Proto, lines.Text())
			w.(http.Flusher).Flush()
		}
		if err := lines.Err(); err != nil {
			t.Errorf("the body of the request: %v", err)
		}
		w.Header().Set("Status", "fine")
	})
	l := listen(t)
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	b := &front.Backend{}
	b.Set([]netip.AddrPort{netip.MustParseAddrPort(l.Addr().String())}, true)
	r := run(t, b, nil)
	in, out := io.Pipe()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+r.secure, in)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := r.client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewReader(answer.Body)
	for i := range 3 {
		fmt.Fprintf(out, "line %d\n", i)
		if got, err := lines.ReadString('\n'); got != fmt.Sprintf("HTTP/2.0 line %d\n", i) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	out.Close()
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Fatal(err)
	}
	if answer.Proto != "HTTP/2.0" || answer.Trailer.Get("Status") != "fine" {
		t.Errorf("%s, trailers %v", answer.Proto, answer.Trailer)
	}
}

// connect opens a connection for what http.Client does not do.
func (r running) connect(t *testing.T) net.Conn {
	t.Helper()
	conn, err := r.dial(t.Context(), "tcp", r.plain)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// An upgraded connection goes both ways, rests for longer than a body may stand still, and outlives its endpoint's
// removal; it ends with the server.
func TestUpgrade(t *testing.T) {
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			t.Errorf("the endpoint got %v", r.Header)
		}
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, rw)
	}, func(t *testing.T, b *front.Backend, r running) {
		conn := r.connect(t)
		fmt.Fprint(conn, "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		reader := bufio.NewReader(conn)
		answer, err := http.ReadResponse(reader, nil)
		if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", answer, err)
		}
		b.Set(nil, false)
		for _, line := range []string{"one\n", "two\n"} {
			fmt.Fprint(conn, line)
			if got, err := reader.ReadString('\n'); got != line {
				t.Fatalf("%q, %v", got, err)
			}
			time.Sleep(10 * time.Minute) // virtual, and longer than a body may stand still
		}
	})
}

// A body may rest for as long as it likes while the endpoint is silent, and a client that does not send what it has
// promised is given up.
func TestSlowClients(t *testing.T) {
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		for range 3 {
			fmt.Fprintln(w, "event")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Minute) // virtual
		}
	}, func(t *testing.T, _ *front.Backend, r running) {
		for _, url := range []string{"http://" + r.plain, "https://" + r.secure} {
			if code, text := r.get(t, url, "a"); code != 200 || strings.Count(text, "event") != 3 {
				t.Errorf("%s: %d %q", url, code, text)
			}
		}
		conn := r.connect(t)
		fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
		if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || answer.StatusCode != 408 {
			t.Errorf("%v, %v", answer, err)
		}
	})
}

// A client that does not read what it has asked for is given up.
func TestDeafClient(t *testing.T) {
	written := make(chan error, 1)
	at := endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		var err error
		for err == nil {
			_, err = w.Write(make([]byte, 1<<20))
		}
		written <- err
	})
	r := run(t, leading(at), func(c *front.Config) { c.Stall = 30 * time.Millisecond })
	fmt.Fprint(r.connect(t), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-written
}

// Requests beyond the bound are turned away at once, and connections beyond theirs wait.
func TestBounds(t *testing.T) {
	arrived, leave := make(chan struct{}, 8), make(chan struct{})
	at := endpoint(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-leave
	})
	r := run(t, leading(at), func(c *front.Config) { c.MaxRequests, c.MaxConnections = 3, 7 })
	var waiting sync.WaitGroup
	for range 2 {
		waiting.Go(func() { r.get(t, "http://"+r.plain, "a") })
		<-arrived
	}
	if code, text := r.get(t, "http://"+r.plain, "a"); code != 503 || !strings.Contains(text, "too many requests") {
		t.Errorf("%d %q", code, text)
	}
	close(leave)
	waiting.Wait()
	r.client.CloseIdleConnections()
	long, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.plain, nil)
	if err != nil {
		t.Fatal(err)
	}
	long.Header.Set("X-Long", strings.Repeat("x", 128<<10))
	answer, err := r.client.Do(long)
	if err != nil || answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Fatalf("%v, %v", answer, err)
	}
	answer.Body.Close()
}

// Neither connections that a client leaves idle nor its requests that nobody answers keep another client out.
func TestClientsShare(t *testing.T) {
	const most = 8
	arrived, leave := make(chan struct{}, most), make(chan struct{})
	at := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hangs" {
			arrived <- struct{}{}
			<-leave
		}
	})
	r := run(t, leading(at), func(c *front.Config) { c.MaxRequests, c.MaxConnections = most, most })
	greedy := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: time.Minute}
	// Each of its connections to HTTPS makes as many requests as it likes.
	transport := &http.Transport{DialContext: greedy.DialContext, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport}
	ask := func(path string) int {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.secure+path, nil)
		if err != nil {
			return 0
		}
		answer, err := client.Do(q)
		if err != nil {
			return 0
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	if code := ask("/"); code != 200 { // So that there is one connection.
		t.Fatalf("the first request gets %d", code)
	}
	codes := make(chan int, most)
	for range most {
		go func() { codes <- ask("/hangs") }()
	}
	for range most / 2 {
		<-arrived
		if code := <-codes; code != http.StatusServiceUnavailable {
			t.Errorf("a further request gets %d", code)
		}
	}
	for range most {
		c, err := greedy.DialContext(t.Context(), "tcp", r.plain)
		if err == nil {
			defer c.Close()
		}
	}
	for _, url := range []string{"http://" + r.plain, "https://" + r.secure} {
		if code, text := r.get(t, url, "a"); code != 200 {
			t.Errorf("another client gets %d %q from %s", code, text, url)
		}
	}
	close(leave)
	for range most / 2 {
		if code := <-codes; code != 200 {
			t.Errorf("a request that has waited gets %d", code)
		}
	}
}

// Endpoints come, go and do not listen any more while requests are made, and none of these fails. One that is listed
// is always dead, others for a while.
func TestEndpointsComeAndGo(t *testing.T) {
	servers := map[netip.AddrPort]*httptest.Server{}
	b, dead := &front.Backend{}, closed(t)
	publish := func() {
		all := []netip.AddrPort{dead}
		for at := range servers {
			all = append(all, at)
		}
		b.Set(all, false)
	}
	start := func() {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
		servers[netip.MustParseAddrPort(s.Listener.Addr().String())] = s
		publish()
	}
	start()
	r := run(t, b, nil)
	var stop atomic.Bool
	var clients sync.WaitGroup
	var served atomic.Int64
	for range 4 {
		clients.Go(func() {
			for !stop.Load() {
				if code, text := r.get(t, "http://"+r.plain, "a"); code != 200 || text != "ok" {
					t.Errorf("%d %q", code, text)
					return
				}
				served.Add(1)
			}
		})
	}
	for range 30 {
		before := served.Load()
		start()
		for at, s := range servers {
			if len(servers) > 2 {
				s.Listener.Close()
				s.Config.SetKeepAlivesEnabled(false) // it ends connections with the answers that it owes
				defer s.Close()
				delete(servers, at) // which nobody is told before the next one goes
			}
		}
		for served.Load() < before+10 && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
	}
	stop.Store(true)
	clients.Wait()
	for _, s := range servers {
		s.Close()
	}
}

// What a request costs, beside a bare ReverseProxy to the same endpoint.
func BenchmarkRequest(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	defer s.Close()
	at := netip.MustParseAddrPort(s.Listener.Addr().String())
	backend := &front.Backend{}
	backend.Set([]netip.AddrPort{at}, false)
	f, err := front.New(front.Config{
		Find: func(string, string) (*front.Backend, bool) { return backend, true }, Dial: dial,
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{{"bare", bare(s.URL)}, {"ingress", f}} {
		b.Run(c.name, func(b *testing.B) {
			server := httptest.NewServer(c.handler)
			defer server.Close()
			transport := &http.Transport{MaxIdleConnsPerHost: 64}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					answer, err := client.Get(server.URL)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
				}
			})
		})
	}
}
