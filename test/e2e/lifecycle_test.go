package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"monoplane.dev/test/lifecycle"
)

// TestLifecycle plays the lifecycle scenarios with processes of this machine; package lifecycle plays them in virtual
// time.
func TestLifecycle(t *testing.T) {
	program := binary(t, "act")
	c := shared(t)
	on := c.scenes(t, c.namespace(t))
	all, err := lifecycle.All("host")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			journal := newJournal(t)
			s := served(t, s)
			on.play(t, s, s.Real("host", program, journal), journal)
		})
	}
}

// served returns the scenario with a port for what its containers serve.
func served(t *testing.T, s *lifecycle.Scenario) *lifecycle.Scenario {
	t.Helper()
	filled, err := s.Filled(lifecycle.Placeholders{Served: heldPort(t)})
	if err != nil {
		t.Fatal(err)
	}
	return filled
}

// heldPort returns a port that the test holds without listening at it, so that nobody else gets it, and shares with
// who asks for that, as program act does.
func heldPort(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
		unix.Bind(fd, &unix.SockaddrInet4{})); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return at.(*unix.SockaddrInet4).Port //nolint:forcetypeassert // as it was bound
}

// newJournal makes the file in which processes of any user leave their marks.
func newJournal(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The processes of a pod that goes on may put a file there meanwhile.
		err := os.RemoveAll(dir)
		for range 100 {
			if err == nil {
				return
			}
			err = os.RemoveAll(dir)
		}
		t.Error(err)
	})
	path := filepath.Join(dir, "journal")
	err = os.WriteFile(path, nil, 0o600)
	if err == nil {
		err = os.Chmod(dir, 0o755) //nolint:gosec // containers mount it
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// sceneTime is how long a scenario may take with all its waits, which on an idle machine are half a minute at most.
const sceneTime = 5 * time.Minute

// play creates the pod of a scenario, collects what is seen of it, and plays the script.
func (p scenes) play(t *testing.T, s *lifecycle.Scenario, pod *corev1.Pod, journal string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sceneTime)
	defer cancel()
	pod.Name = s.Name
	seen := &lifecycle.History{}
	p.follow(ctx, t, pod.Name, seen)
	go readMarks(ctx, journal, seen)
	p.create(t, pod)
	if err := s.Run(ctx, onePod{p, pod.Name}, seen); err != nil {
		t.Error(err)
	}
	if err := p.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// follow shows a pod as the API tells it, from now on until ctx ends.
func (p scenes) follow(ctx context.Context, t *testing.T, name string, seen *lifecycle.History) {
	t.Helper()
	w, err := p.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(ctx, w.Stop)
	go func() {
		for e := range w.ResultChan() {
			if now, is := e.Object.(*corev1.Pod); is {
				seen.Saw(now)
			}
			if e.Type == "DELETED" {
				seen.Saw(nil)
			}
		}
	}()
}

// readMarks shows the marks in a journal as they come, until ctx ends.
func readMarks(ctx context.Context, journal string, seen *lifecycle.History) {
	f, err := os.Open(journal)
	if err != nil {
		panic(err) // the test has made it
	}
	defer func() { _ = f.Close() }()
	r, line := bufio.NewReader(f), ""
	for ctx.Err() == nil {
		part, err := r.ReadString('\n')
		if line += part; err != nil {
			time.Sleep(10 * time.Millisecond) // processes write it; nothing tells
			continue
		}
		words := strings.Fields(line)
		nanos, _ := strconv.ParseInt(words[0], 10, 64)
		seen.Marked(lifecycle.Mark{Time: time.Unix(0, nanos), Container: words[1], What: words[2]})
		line = ""
	}
}

// scenes are the pods of a namespace in which scenarios are played.
type scenes struct {
	pods

	events clientcorev1.EventInterface
}

func (c *cluster) scenes(t *testing.T, namespace string) scenes {
	t.Helper()
	return scenes{c.pods(t, namespace), c.client(t).CoreV1().Events(namespace)}
}

// onePod is a scenario's view of a cluster.
type onePod struct {
	scenes

	name string
}

// Events implements lifecycle.Driver.
func (p onePod) Events(ctx context.Context) ([]string, error) {
	list, err := p.events.List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + p.name})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range list.Items {
		out = append(out, e.Reason+" "+e.Message)
	}
	return out, nil
}

// Patch implements lifecycle.Driver.
func (p onePod) Patch(ctx context.Context, subresource string, patch []byte) error {
	var of []string
	if subresource != "" {
		of = append(of, subresource)
	}
	_, err := p.scenes.Patch(ctx, p.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, of...)
	return err
}

// Delete implements lifecycle.Driver.
func (p onePod) Delete(ctx context.Context, graceSeconds *int64) error {
	return p.PodInterface.Delete(ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: graceSeconds})
}
