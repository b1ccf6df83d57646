package e2e_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
)

// Commands run in a container with their input, their exit code and a refusal in words, over WebSocket and over SPDY,
// and files are copied in and out.
//
// spec: CTR-9
func TestExecAndCopy(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	k.ok(t, "run runs --image=host --command -- sleep 1000")
	k.ok(t, "wait --for=condition=Ready pod/runs --timeout=60s")
	for _, websockets := range []string{"true", "false"} {
		k.env = append(k.env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets)
		k.tour(t, []step{
			{line: "exec runs -- sh -c 'echo out; echo err >&2; exit 7'", code: 7, want: []string{`^out$`, `^err$`}},
			{line: "exec -i runs -- wc -c", stdin: strings.Repeat("x", 1<<20), want: []string{`^1048576$`}},
			{line: "exec runs -- /no/such", code: 1, want: []string{`"/no/such" does not exist`}},
			{line: "exec runs -c other -- true", code: 1, want: []string{`container other is not valid for pod runs`}},
			{line: "exec missing -- true", code: 1, want: []string{`pods "missing" not found`}},
		})
	}
	dir := t.TempDir()
	from, there, back := filepath.Join(dir, "from"), filepath.Join(dir, "there"), filepath.Join(dir, "back")
	text := bytes.Repeat([]byte("0123456789"), 100_000)
	if err := os.WriteFile(from, text, 0o600); err != nil {
		t.Fatal(err)
	}
	k.ok(t, "cp "+from+" runs:"+there)
	k.ok(t, "cp runs:"+there+" "+back)
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes have come back, %v", len(got), err)
	}
	k.ok(t, "delete pod runs --now")
}

// A client that is killed takes its command with it, also one that neither reads nor writes.
//
// spec: CTR-9
func TestExecClientKilled(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	k.ok(t, "run runs --image=host --command -- sleep 1000")
	k.ok(t, "wait --for=condition=Ready pod/runs --timeout=60s")
	cmd := k.command(t, []string{"exec", "runs", "--", "sh", "-c", "echo $$; exec sleep 1000"})
	out := &capture{}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.waitFor(t, `^\d+\n`)
	pid := strings.TrimSpace(out.String())
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // Killed.
	eventually(t, "the command is dead", func() (bool, string) {
		_, err := os.Stat("/proc/" + pid)
		return os.IsNotExist(err), "process " + pid
	})
	k.ok(t, "delete pod runs --now")
}

// Requests reach a port of a pod through the server, its own name or its service's, and say so when nobody listens.
//
// spec: CTR-9
func TestProxyToPods(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/page":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, `<a href="/other">x</a>`)
			return
		case "/socket":
			conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, text, _ := conn.ReadMessage()
			_ = conn.WriteMessage(websocket.TextMessage, bytes.ToUpper(text))
			return
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Authorization", r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusMultiStatus)
		fmt.Fprintf(w, "%s %s %d", r.Method, r.RequestURI, len(body))
	}))
	defer web.Close()
	_, port, err := net.SplitHostPort(web.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	k.ok(t, "run web --image=host --labels=app=web --port="+port+" --command -- sleep 1000")
	k.ok(t, "expose pod web --port=80 --target-port="+port)
	k.ok(t, "wait --for=condition=Ready pod/web --timeout=60s")
	k.ok(t, "wait --for=jsonpath={.subsets[0].addresses[0].targetRef.name}=web endpoints/web --timeout=60s")
	root := "/api/v1/namespaces/" + k.namespace
	k.tour(t, []step{
		{line: "get --raw " + root + "/pods/web/proxy/a/b?x=y", want: []string{`^GET /a/b\?x=y 0$`}},
		{line: "get --raw " + root + "/pods/http:web:" + port + "/proxy/", want: []string{`^GET / 0$`}},
		{line: "get --raw " + root + "/services/web/proxy/", want: []string{`^GET / 0$`}},
		{line: "get --raw " + root + "/services/web:80/proxy/page",
			want: []string{`href="` + root + `/services/web:80/proxy/other"`}},
		{line: "get --raw " + root + "/services/web:81/proxy/", code: 1,
			want: []string{`no service port 81 found for service "web"`}},
		{line: "get --raw " + root + "/pods/web:1/proxy/", code: 1,
			want: []string{`\(ServiceUnavailable\): error trying to reach service: .*connection refused`}},
		{line: "get --raw " + root + "/pods/https:web:/proxy/", code: 1, want: []string{`ServiceUnavailable.*tls: `}},
	})
	url := c.config(t).Host
	a := send(t, c.http(t), "PATCH", url+root+"/pods/web/proxy/%2f%2F?a=%20", "text/x", strings.Repeat("x", 1<<20))
	if a.code != http.StatusMultiStatus || a.body != "PATCH /%2f%2F?a=%20 1048576" ||
		a.header.Get("X-Authorization") != "" {
		t.Errorf("%d, %v, %q", a.code, a.header, a.body)
	}
	tls, err := rest.TLSConfigFor(c.config(t))
	if err != nil {
		t.Fatal(err)
	}
	dialer := websocket.Dialer{TLSClientConfig: tls}
	conn, resp, err := dialer.DialContext(t.Context(),
		strings.Replace(url, "http", "ws", 1)+root+"/pods/web/proxy/socket", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	defer conn.Close()
	if err := conn.WriteMessage(websocket.TextMessage, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, text, err := conn.ReadMessage(); err != nil || string(text) != "HELLO" {
		t.Errorf("%q, %v", text, err)
	}
	k.ok(t, "delete pod web --now")
}

// Connections are forwarded to a port, over WebSocket and over SPDY, until either side ends them: a port that says all
// and closes ends what the client waits for. Nobody listening is said, and does not end the other connections.
//
// spec: CTR-9
func TestPortForward(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // Says all, and closes, without waiting for the client to do so.
				defer conn.Close()
				line, _ := bufio.NewReader(conn).ReadString('\n')
				_, _ = io.WriteString(conn, strings.Repeat(strings.ToUpper(line), 100_000))
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	k.ok(t, "run web --image=host --command -- sleep 1000")
	k.ok(t, "wait --for=condition=Ready pod/web --timeout=60s")
	for _, websockets := range []string{"true", "false"} {
		k.env = append(k.env, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+websockets)
		cmd := k.command(t, []string{"port-forward", "pod/web", ":" + port, ":1"})
		out := &capture{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		out.waitFor(t, `(?s)127.0.0.1:(\d+) -> `+port+`.*127.0.0.1:(\d+) -> 1\b`)
		ends := regexp.MustCompile(`127.0.0.1:(\d+) -> `).FindAllStringSubmatch(out.String(), -1)
		ask := func() string {
			conn, err := net.Dial("tcp", "127.0.0.1:"+ends[0][1])
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, "hello\n")
			text, err := io.ReadAll(conn)
			if err != nil {
				t.Error(err)
			}
			return string(text)
		}
		want := strings.Repeat("HELLO\n", 100_000)
		var asks sync.WaitGroup
		for range 5 {
			asks.Go(func() {
				if got := ask(); got != want {
					t.Errorf("WebSocket %s: %d bytes, want %d", websockets, len(got), len(want))
				}
			})
		}
		asks.Wait()
		if conn, err := net.Dial("tcp", "127.0.0.1:"+ends[1][1]); err == nil {
			out.waitFor(t, `connection refused`)
			conn.Close()
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // Killed.
	}
	k.ok(t, "delete pod web --now")
}
