package descriptors

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// What is left when everybody has taken his share is what etcd needs in the smallest of processes.
func TestSharesLeaveRoom(t *testing.T) {
	if left := whole - (2*Listener + Network + Services + Streams + Ingress); left*Needed/whole < 24 {
		t.Errorf("%d thirty-seconds of %d descriptors are left", left, Needed)
	}
}

func TestCount(t *testing.T) {
	if os.Getenv("DESCRIPTORS_TEST") != "" {
		t.Log("count", Network.Count(), Enough())
		return
	}
	for limit, want := range map[string]string{
		"1024": "count 192 <nil>",
		"100":  "count 24 this process may open 100 files only; it needs 128",
	} {
		cmd := exec.Command("sh", "-c", `ulimit -n "$1" && exec "$0" -test.run '^TestCount$' -test.v`, os.Args[0], limit)
		cmd.Env = append(os.Environ(), "DESCRIPTORS_TEST=1")
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), want) {
			t.Errorf("with %s descriptors: %s; want %q", limit, out, want)
		}
	}
}
