//go:build rootonly

package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Commands, the container's first process, files, ports and HTTP are reached through the server that a runtime names,
// over both protocols of kubectl.
//
// spec: CTR-9
func (c onContainerd) streams(t *testing.T) {
	pod := boxed("streams", `echo $$; while read line; do echo "got $line"; done`)
	pod.Spec.Containers[0].Stdin = true
	c.run(t, pod)
	c.run(t, boxed("serves", `echo served >/tmp/x; exec httpd -f -p 127.0.0.1:8080 -h /tmp`))
	k := c.kubectl(t, "default")
	for _, websockets := range []string{"true", "false"} {
		k.env = append(k.env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets,
			"KUBECTL_PORT_FORWARD_WEBSOCKETS="+websockets)
		k.tour(t, []step{
			{line: "exec streams -- sh -c 'echo out; echo err >&2; exit 7'", code: 7, want: []string{`^out$`, `^err$`}},
			{line: "exec -i streams -- wc -c", stdin: strings.Repeat("x", 1<<20), want: []string{`^1048576$`}},
			{line: "exec streams -- /no/such", code: 1, want: []string{`/no/such`}},
			{line: "exec streams -- sh -c 'kill -9 $$'", code: 137},
		})
		cmd := k.command(t, []string{"attach", "-i", "streams"})
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out := &capture{}
		cmd.Stdout = out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the first process has heard and answered", func() (bool, string) {
			_, _ = io.WriteString(in, "me\n") // Again: what is said before kubectl has attached may get lost.
			return strings.Contains(out.String(), "got me\n"), out.String()
		})
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // Killed.

		eventually(t, "something listens", func() (bool, string) { // The forwarding kubectl ends when nobody does.
			out, err := c.client(t).CoreV1().RESTClient().Get().
				AbsPath("/api/v1/namespaces/default/pods/serves:8080/proxy/x").DoRaw(t.Context())
			return string(out) == "served\n", fmt.Sprint(string(out), err)
		})
		forward := k.command(t, []string{"port-forward", "pod/serves", ":8080"})
		said := &capture{}
		forward.Stdout, forward.Stderr = said, said
		if err := forward.Start(); err != nil {
			t.Fatal(err)
		}
		said.waitFor(t, `127.0.0.1:\d+ -> 8080`)
		near := regexp.MustCompile(`127.0.0.1:\d+`).FindString(said.String())
		conn, err := net.Dial("tcp", near)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /x HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(text), "\r\n\r\nserved\n") {
			t.Errorf("the port has said %q, %v; kubectl %s", text, err, said)
		}
		conn.Close()
		_ = forward.Process.Kill()
		_ = forward.Wait() // Killed.
	}
	dir := t.TempDir()
	from, back := filepath.Join(dir, "from"), filepath.Join(dir, "back")
	text := bytes.Repeat([]byte("0123456789"), 100_000)
	if err := os.WriteFile(from, text, 0o600); err != nil {
		t.Fatal(err)
	}
	k.ok(t, "cp "+from+" streams:/there")
	k.ok(t, "cp streams:/there "+back)
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes have come back, %v", len(got), err)
	}
	c.delete(t, "streams", 0)
	c.delete(t, "serves", 0)
}
