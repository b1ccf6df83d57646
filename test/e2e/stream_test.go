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
	corev1 "k8s.io/api/core/v1"
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
	k.ok(t, "wait --for=condition=Ready pod/runs --timeout=2m")
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
	k.ok(t, "wait --for=condition=Ready pod/runs --timeout=2m")
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
	k.ok(t, "wait --for=condition=Ready pod/web --timeout=2m")
	k.until(t, "get endpoints web -o jsonpath={.subsets[0].addresses[0].targetRef.name}", `web$`)
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
	k.ok(t, "wait --for=condition=Ready pod/web --timeout=2m")
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

// What kubectl can ask of logs: of all containers and of many pods, some of it, with times, and of those that wait.
//
// spec: CTR-8
func TestLogsOfManyKinds(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	const manifest = `
apiVersion: v1
kind: Pod
metadata: {name: many, labels: {app: many}}
spec:
  initContainers:
  - {name: init, image: host, command: [echo, first]}
  containers:
  - {name: a, image: host, command: [sh, -c, "for i in 1 2 3; do echo a$i; done; exec sleep 1000"]}
  - {name: b, image: host, command: [sh, -c, "head -c 40000 /dev/zero | tr '\\0' x; echo; echo end; exec sleep 1000"]}
---
apiVersion: v1
kind: Pod
metadata: {name: done, labels: {app: many}}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: host, command: [echo, done]}
---
apiVersion: v1
kind: Pod
metadata: {name: waits}
spec:
  initContainers:
  - {name: init, image: host, command: [sh, -c, "echo waits; exec sleep 1000"]}
  containers:
  - {name: c, image: host, command: [echo, never]}
`
	long := strings.Repeat("x", 40_000) // In several pieces, as the runtime writes it.
	k.tour(t, []step{{line: "apply -f -", stdin: manifest}})
	k.ok(t, "wait --for=condition=Ready pod/many --timeout=2m")
	k.ok(t, "wait --for=jsonpath={.status.phase}=Succeeded pod/done --timeout=2m")
	k.until(t, "logs many -c b --tail=1", `end\n$`)
	k.until(t, "logs many -c a", `a3\n$`)
	k.until(t, "logs waits -c init", `^waits\n$`)
	k.tour(t, []step{
		{line: "logs many --all-containers --prefix", want: []string{
			`^\[pod/many/init\] first$`, `^\[pod/many/a\] a3$`,
			`^\[pod/many/b\] ` + long + `$`, `^\[pod/many/b\] end$`}},
		{line: "logs -l app=many --all-containers --prefix --tail=1", want: []string{`^\[pod/many/a\] a3$`,
			`^\[pod/done/c\] done$`, `^\[pod/many/init\] first$`}},
		{line: "logs many -c init", want: []string{`\Afirst\n\z`}},
		{line: "logs many -c a --tail=2", want: []string{`\Aa2\na3\n\z`}},
		{line: "logs many -c a --limit-bytes=4", want: []string{`\Aa1\na\z`}},
		{line: "logs many -c a --timestamps --tail=1",
			want: []string{`\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z a3\n\z`}},
		{line: "logs many -c b --timestamps", want: []string{`^\S+Z ` + long + `$`, `Z end$`}},
		{line: "logs many -c a --since-time=2020-01-01T00:00:00Z", want: []string{`\Aa1\na2\na3\n\z`}},
		{line: "logs many -c a --since=1h", want: []string{`\Aa1\na2\na3\n\z`}},
		{line: "logs done -f", want: []string{`\Adone\n\z`}},
		{line: "logs done --previous", code: 1,
			want: []string{`\(BadRequest\): previous terminated container "c" in pod "done" not found`}},
		{line: "logs waits -c c", code: 1,
			want: []string{`\(BadRequest\): container "c" in pod "waits" is waiting to start: PodInitializing`}},
		{line: "logs many -c none", code: 1, want: []string{`container none is not valid for pod many`}},
		{line: "logs missing", code: 1, want: []string{`pods "missing" not found`}},
		{line: "debug many --image=host --container=dbg -- sh -c 'echo debugging; exec sleep 1000'"},
	})
	eventually(t, "the container for debugging has spoken", func() (bool, string) {
		out, err := c.client(t).CoreV1().Pods(k.namespace).GetLogs("many", &corev1.PodLogOptions{Container: "dbg"}).
			DoRaw(t.Context())
		return string(out) == "debugging\n", fmt.Sprint(string(out), err)
	})
	k.ok(t, "delete pod --all --now")
}
