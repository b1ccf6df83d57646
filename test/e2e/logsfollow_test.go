package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A log that is rotated while somebody follows it is read whole: no line is lost, doubled or out of its order, and
// each has its time in nanoseconds.
//
// spec: CTR-8
func TestLogsAreFollowedThroughRotation(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	// Lines of 40 kB, which the runtime writes in pieces, and of a few bytes between them: more than a log may have
	// before it is rotated, less than what counts as a flood.
	const long, lines = 40_000, 600
	box := newBox(t)
	// Nothing but the first line is there when the follower comes: a log that was rotated before has no more of it.
	script := box.sh(`x=$(head -c 40000 /dev/zero | tr '\0' x); echo "0 $x"
while [ ! -e BOX/followed ]; do sleep 0.1; done; echo 1; i=2
while [ $i -lt 600 ]; do echo "$i $x"; i=$((i+1)); echo "$i"; i=$((i+1)); done
while [ ! -e BOX/more ]; do sleep 0.1; done
while [ $i -lt 620 ]; do echo "$i $x"; i=$((i+1)); echo "$i"; i=$((i+1)); done; exec sleep 1000`)
	k.tour(t, []step{{line: "apply -f -", stdin: `
apiVersion: v1
kind: Pod
metadata: {name: writes}
spec:
  containers:
  - {name: c, image: host, command: [sh, -c, ` + fmt.Sprintf("%q", script) + `]}
`}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	k.ok(t, "wait --for=condition=Ready pod/writes --timeout=2m")
	logs, err := c.client(t).CoreV1().Pods(k.namespace).GetLogs("writes", &corev1.PodLogOptions{
		Follow: true, Timestamps: true}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	box.put(t, "followed")
	r := bufio.NewReader(logs)
	last := time.Time{}
	for i := range lines + 20 {
		if i == lines {
			eventually(t, "the log is rotated", func() (bool, string) {
				files, err := filepath.Glob(filepath.Join(c.dir, "nodes", "*", "logs", k.namespace+"_writes_*", "c", "0.log*"))
				return len(files) > 1, fmt.Sprint(files, err)
			})
			box.put(t, "more")
		}
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("line %d: %v", i, err)
		}
		stamp, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil || at.Before(last) || !regexp.MustCompile(`\.\d{9}Z$`).MatchString(stamp) {
			t.Fatalf("line %d: %q after %s, %v", i, stamp, last, err)
		}
		last = at
		number, rest, _ := strings.Cut(text, " ")
		if number != fmt.Sprint(i) || i%2 == 0 && rest != strings.Repeat("x", long) || i%2 == 1 && rest != "" {
			t.Fatalf("line %d is %.20q with %d bytes", i, text, len(text))
		}
	}
	k.ok(t, "delete pod writes --now")
	if rest, err := io.ReadAll(r); len(rest) > 0 || err != nil {
		t.Errorf("after the last line: %.100q, %v", rest, err)
	}
}

// Who follows the log of a container that ends gets its last words, and the end, as from kubelets; the log of the next
// instance is another one, and that of the one before is still there.
//
// spec: CTR-8
func TestLogsAreFollowedThroughRestart(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	box := newBox(t)
	script := box.sh(`if [ -e BOX/second ]; then echo second; exec sleep 1000; fi
i=0; while [ ! -e BOX/end ]; do echo first $i; i=$((i+1)); sleep 0.02; done; touch BOX/second
echo last words $i; exit 1`)
	k.ok(t, "run restarts --image=host --command -- sh -c '"+script+"'")
	k.ok(t, "wait --for=condition=Ready pod/restarts --timeout=2m")
	out, done := k.background(t, "logs -f restarts")
	out.waitFor(t, `first 20\n`)
	box.put(t, "end")
	<-done
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for i, line := range lines {
		want := fmt.Sprintf("first %d", i)
		if i == len(lines)-1 {
			want = fmt.Sprintf("last words %d", i)
		}
		if line != want {
			t.Fatalf("line %d is %q, want %q", i, line, want)
		}
	}
	k.until(t, "get pod restarts -o 'jsonpath={.status.containerStatuses[0].restartCount} "+
		"{.status.containerStatuses[0].state.running.startedAt}'", `^1 \d`)
	again, _ := k.background(t, "logs -f restarts")
	again.waitFor(t, `^second\n$`)
	if previous := k.ok(t, "logs restarts --previous"); previous != out.String() {
		t.Errorf("%d bytes were followed, %d are kept of the one before", len(out.String()), len(previous))
	}
	k.ok(t, "delete pod restarts --now")
}
