package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// socket opens a WebSocket to a subresource of a pod.
func (c *cluster) socket(t *testing.T, namespace, rest, protocol string) *websocket.Conn {
	t.Helper()
	d := websocket.Dialer{TLSClientConfig: c.tls(t), Subprotocols: []string{protocol}}
	url := strings.Replace(c.url, "https", "wss", 1) + "/api/v1/namespaces/" + namespace + "/pods/" + rest
	conn, resp, err := d.DialContext(t.Context(), url, nil)
	if err != nil {
		body := ""
		if resp != nil {
			b, _ := io.ReadAll(resp.Body)
			body = string(b)
		}
		t.Fatalf("%s: %v, %s", url, err, body)
	}
	resp.Body.Close()
	t.Cleanup(func() { conn.Close() })
	return conn
}

// sleeper starts a pod that sleeps.
func (k *kubectl) sleeper(t *testing.T, name string) {
	t.Helper()
	k.ok(t, "run "+name+" --image=host --command -- sleep 1000")
	k.ok(t, "wait --for=condition=Ready pod/"+name+" --timeout=2m")
}

// A command that floods a client which reads nothing waits for it: what is on its way is bounded, the server's memory
// and other commands do not notice. The command dies with the connection.
//
// spec: CTR-9
func TestExecFloods(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl(t, "default")
	k.sleeper(t, "runs")
	box := newBox(t)
	const floods = 10
	before, _ := c.memory(t)
	var conns [floods]*websocket.Conn
	var pids [floods]int
	for i := range floods {
		pid := fmt.Sprintf("pid%d", i)
		conns[i] = c.socket(t, "default", "runs/exec?stdout=1&command=sh&command=-c&command="+
			"echo+$$>"+box.dir+"/"+pid+"%3Bexec+cat+/dev/zero", "v5.channel.k8s.io")
		pids[i] = box.pid(t, pid)
	}
	written := func() (all int64) {
		for _, pid := range pids {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
			if err != nil {
				t.Fatal(err)
			}
			n, _ := strconv.ParseInt(regexp.MustCompile(`wchar: (\d+)`).FindStringSubmatch(string(text))[1], 10, 64)
			all += n
		}
		return all
	}
	last := int64(0)
	eventually(t, "the floods are held back", func() (bool, string) {
		now := written()
		still := now == last && now > 0
		last = now
		return still, fmt.Sprint(now)
	})
	if last > floods*(32<<20) {
		t.Errorf("%d bytes were taken of %d floods that nobody reads", last, floods)
	}
	k.tour(t, []step{{line: "exec runs -- echo fine", want: []string{`^fine$`}}})
	_, after := c.memory(t)
	if after-before > 100<<20 {
		t.Errorf("the server's memory has grown by %d bytes", after-before)
	}
	t.Logf("%d bytes of %d floods are on their way, the server's memory has grown by %d", last, floods, after-before)
	for i, conn := range conns {
		conn.Close()
		gone(t, pids[i])
	}
}

// Hundreds of commands run at once, and each has its own output and exit code.
//
// spec: CTR-9
func TestManyExecs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl(t, "default")
	k.sleeper(t, "runs")
	const many = 200
	before, _ := c.memory(t)
	var all, running sync.WaitGroup
	running.Add(many)
	// So many are on their way to run: the server gives a handshake its time, which hundreds at once would take from
	// each other on a busy machine.
	starting := make(chan struct{}, 50)
	for i := range many {
		all.Go(func() {
			starting <- struct{}{}
			in, say := io.Pipe()
			out := &firstWrite{did: func() { <-starting; running.Done() }}
			go func() {
				running.Wait() // All of them run at this moment.
				_, _ = io.WriteString(say, "end\n")
				_ = say.Close()
			}()
			script := fmt.Sprintf("echo %d; read x; echo $x; exit %d", i, i%250+1)
			err := c.exec(t, "default", "runs", in, out, "sh", "-c", script)
			var exit utilexec.ExitError
			if !errors.As(err, &exit) || exit.ExitStatus() != i%250+1 || out.String() != fmt.Sprintf("%d\nend\n", i) {
				t.Errorf("%d: %q, %v", i, out.String(), err)
				out.once.Do(out.did)
			}
		})
	}
	all.Wait()
	_, after := c.memory(t)
	t.Logf("the server's memory has grown by %d bytes", after-before)
	if after-before > 400<<20 {
		t.Errorf("the server's memory has grown by %d bytes", after-before)
	}
}

// firstWrite tells of the first write.
type firstWrite struct {
	capture
	once sync.Once
	did  func()
}

func (f *firstWrite) Write(b []byte) (int, error) {
	f.once.Do(f.did)
	return f.capture.Write(b)
}

// exec runs a command over a WebSocket, as kubectl does.
func (c *cluster) exec(t *testing.T, namespace, pod string, in io.Reader, out io.Writer, command ...string) error {
	req := c.client(t).CoreV1().RESTClient().Get().Namespace(namespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdin: in != nil, Stdout: true}, scheme.ParameterCodec)
	e, err := remotecommand.NewWebSocketExecutor(c.config(t), http.MethodGet, req.URL().String())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out})
}

// When the server dies, kubectl says so and fails, and what it ran ends. (Over SPDY, kubectl takes the end of the
// connection for that of a command that went well, whoever serves it.)
//
// spec: CTR-9
func TestExecServerKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl(t, "default")
	k.sleeper(t, "runs")
	box := newBox(t)
	lines := map[string]string{
		"exec runs -- sh -c 'echo $$ >" + box.dir + "/exec; echo begun; exec sleep 1000'": `error: error reading from error stream`,
		"exec runs -- sh -c 'echo begun; echo $$ >" + box.dir + "/quiet; sleep 1000'":     `error: error reading from error stream`,
		"port-forward runs :1": `error: lost connection to pod`,
	}
	type client struct {
		out  *capture
		code chan int
	}
	clients := map[string]client{}
	for line := range lines {
		cl := client{&capture{}, make(chan int, 1)}
		clients[line] = cl
		cmd := k.command(t, words(line))
		cmd.Stdout, cmd.Stderr = cl.out, cl.out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = cmd.Wait() // Its code says the same.
			cl.code <- cmd.ProcessState.ExitCode()
		}()
	}
	pids := []int{box.pid(t, "exec"), box.pid(t, "quiet")}
	for _, cl := range clients {
		cl.out.waitFor(t, `begun|Forwarding`)
	}
	c.kill(t)
	for line, cl := range clients {
		if code := <-cl.code; code == 0 || !strings.Contains(cl.out.String(), lines[line]) {
			t.Errorf("kubectl %s: exit code %d, %s", line, code, cl.out)
		}
	}
	for _, pid := range pids {
		gone(t, pid)
	}
	again := startIn(t, c.dir)
	eventually(t, "commands run again", func() (bool, string) {
		out, code := again.kubectl(t, "default").run(t, "", "exec", "runs", "--", "echo", "again")
		return code == 0 && out == "again\n", out
	})
}

// A port that breaks off, or at which nobody listens, is told of on its own stream; the other connections of the same
// client go on.
//
// spec: CTR-9
func TestPortForwardBreaks(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	k.sleeper(t, "web")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for b := make([]byte, 100); ; {
					n, err := conn.Read(b)
					if err != nil {
						return
					}
					if bytes.Contains(b[:n], []byte("break")) {
						_ = conn.(*net.TCPConn).SetLinger(0) // A reset.
						return
					}
					_, _ = conn.Write(bytes.ToUpper(b[:n]))
				}
			}()
		}
	}()
	tripper, upgrader, err := spdy.RoundTripperFor(c.config(t))
	if err != nil {
		t.Fatal(err)
	}
	url := c.client(t).CoreV1().RESTClient().Post().Namespace(k.namespace).Resource("pods").Name("web").
		SubResource("portforward").URL()
	overSPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: tripper}, http.MethodPost, url)
	overSockets, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, c.config(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, dialer := range map[string]httpstream.Dialer{"SPDY": overSPDY, "WebSocket": overSockets} {
		conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		if err != nil {
			t.Fatal(name, err)
		}
		defer conn.Close()
		open := func(id, port int) (data, errs io.ReadWriteCloser) {
			t.Helper()
			h := http.Header{}
			h.Set(corev1.PortHeader, strconv.Itoa(port))
			h.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(id))
			h.Set(corev1.StreamType, corev1.StreamTypeError)
			e, err := conn.CreateStream(h)
			if err != nil {
				t.Fatal(name, err)
			}
			_ = e.Close()
			h.Set(corev1.StreamType, corev1.StreamTypeData)
			d, err := conn.CreateStream(h)
			if err != nil {
				t.Fatal(name, err)
			}
			return d, e
		}
		said := func(d io.ReadWriter, text string) {
			t.Helper()
			got := make([]byte, len(text))
			if _, err := io.WriteString(d, text); err != nil {
				t.Fatal(name, err)
			}
			if _, err := io.ReadFull(d, got); err != nil || string(got) != strings.ToUpper(text) {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		lives, livesErrs := open(0, port)
		said(lives, "hello")
		breaks, breaksErrs := open(1, port)
		said(breaks, "hello")
		_, _ = io.WriteString(breaks, "break")
		want := fmt.Sprintf("error forwarding port %d to pod web", port)
		if text, _ := io.ReadAll(breaksErrs); !strings.Contains(string(text), want) {
			t.Errorf("%s: of a port that breaks off is said %q", name, text)
		}
		_, nobodyErrs := open(2, 1)
		if text, _ := io.ReadAll(nobodyErrs); !strings.Contains(string(text), "connection refused") {
			t.Errorf("%s: of a port at which nobody listens is said %q", name, text)
		}
		said(lives, "again")
		_ = lives.Close()
		if text, err := io.ReadAll(livesErrs); len(text) > 0 || err != nil {
			t.Errorf("%s: of one that ends well is said %q, %v", name, text, err)
		}
	}

	// Clients in other languages name the ports.
	socket := c.socket(t, k.namespace, fmt.Sprintf("web/portforward?ports=%d&ports=1", port), "v4.channel.k8s.io")
	got := map[byte]string{}
	_ = socket.WriteMessage(websocket.BinaryMessage, []byte("\x00hello"))
	for !strings.Contains(got[0], "HELLO") || !strings.Contains(got[3], "connection refused") {
		_ = socket.SetReadDeadline(time.Now().Add(patience))
		_, message, err := socket.ReadMessage()
		if err != nil {
			t.Fatal(err, got)
		}
		got[message[0]] += string(message[1:])
	}
	again := websocket.Dialer{TLSClientConfig: c.tls(t), Subprotocols: []string{"v4.channel.k8s.io"}}
	for _, ports := range []string{"", "?ports=0", "?ports=70000", "?ports=x"} {
		_, resp, err := again.DialContext(t.Context(), strings.Replace(url.String(), "https", "wss", 1)+ports, nil)
		if err == nil || resp == nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %v, %v", ports, resp, err)
		}
		if resp != nil {
			resp.Body.Close()
		}
	}
	k.ok(t, "delete pod web --now")
}

// A client that is killed takes what it has begun with it, whatever it spoke.
//
// spec: CTR-9
func TestClientKilled(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	k.sleeper(t, "runs")
	box := newBox(t)
	for _, websockets := range []string{"true", "false"} {
		k.env = append(k.env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets)
		for i, flags := range []string{"", "-i", "-it"} {
			name := websockets + strconv.Itoa(i)
			cmd := k.command(t, words("exec "+flags+" runs -- sh -c 'echo $$ >"+box.dir+"/"+name+"; exec sleep 1000'"))
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pid := box.pid(t, name)
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // Killed.
			_ = stdin.Close()
			gone(t, pid)
		}
	}
	k.ok(t, "delete pod runs --now")
}

// tls is how a client proves who it is.
func (c *cluster) tls(t *testing.T) *tls.Config {
	t.Helper()
	config, err := rest.TLSConfigFor(c.config(t))
	if err != nil {
		t.Fatal(err)
	}
	return config
}
