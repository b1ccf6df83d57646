package e2e_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
