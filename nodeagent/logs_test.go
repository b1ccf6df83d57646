package nodeagent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent/criconfig"
)

// streams is the server's side of NodeStreams, as simple as it can be: it asks one agent at a time. (The real one is
// apiserver/nodestreams, which this package must not import.)
type streams struct {
	nodev1rpc.UnimplementedNodeStreamsServer

	calls  chan *nodev1rpc.Call
	frames chan *nodev1rpc.Frame // nil marks the end
}

func (s *streams) Listen(_ *nodev1rpc.ListenRequest, stream nodev1rpc.NodeStreams_ListenServer) error {
	for {
		select {
		case c := <-s.calls:
			if err := stream.Send(c); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (s *streams) Answer(stream nodev1rpc.NodeStreams_AnswerServer) error {
	for {
		f, err := stream.Recv()
		if err != nil {
			s.frames <- nil
			return err
		}
		if f.GetCallID() == "" {
			s.frames <- f
		}
	}
}

// log asks for a log and returns it, or the error that the agent states.
func (s *streams) log(p *corev1.Pod, o *corev1.PodLogOptions) (string, *nodev1rpc.Frame) {
	s.calls <- &nodev1rpc.Call{Id: "x", Request: &nodev1rpc.Call_Log{Log: &nodev1rpc.LogCall{
		Namespace: "default", Pod: p.GetMetadata().GetName(), Uid: p.GetMetadata().GetUid(), Options: o,
	}}}
	var text strings.Builder
	for f := range s.frames {
		if f == nil {
			break
		}
		if f.GetError() != "" {
			<-s.frames
			return "", f
		}
		text.Write(f.GetData())
	}
	return text.String(), nil
}

// withLogs gives the world log files and a server that asks for them.
func withLogs(w *world, dir string) *streams {
	s := &streams{calls: make(chan *nodev1rpc.Call), frames: make(chan *nodev1rpc.Frame)}
	srv := inproc.NewServer(nil, nil)
	nodev1rpc.RegisterNodeStreamsServer(srv, s)
	c := *w.cfg.Client
	c.NodeStreams = nodev1rpc.NewNodeStreamsClient(srv.Conn())
	w.cfg.Client, w.cfg.PodLogDir, w.cfg.NoStreams = &c, dir, false
	w.t.Cleanup(srv.Stop)
	return s
}

// spec: CTR-8
func TestLogs(t *testing.T) {
	dir := t.TempDir()
	inWorld(t, func(w *world) {
		s := withLogs(w, dir)
		w.start()
		p := w.create("a", annotated("exit-after", "1s", "log", "hello"))
		w.settle()
		if got, _ := s.log(p, &corev1.PodLogOptions{Container: "main"}); got != "hello\n" {
			t.Errorf("got %q", got)
		}
		_, f := s.log(p, &corev1.PodLogOptions{Container: "main", Previous: true})
		if f.GetReason() != string(apierrors.BadRequest) ||
			f.GetError() != `previous terminated container "main" in pod "a" not found` {
			t.Errorf("previous: %v", f)
		}
		if _, f := s.log(p, &corev1.PodLogOptions{Container: "none"}); f.GetReason() != string(apierrors.BadRequest) {
			t.Errorf("no such container: %v", f)
		}
		time.Sleep(10 * time.Second) // the second run has ended, the third is waited for
		dirOf := filepath.Join(dir, criconfig.PodDir("default", "a", p.GetMetadata().GetUid()))
		line := func(n int, text string) {
			err := os.WriteFile(filepath.Join(dirOf, criconfig.LogName("main", uint32(n))),
				fmt.Appendf(nil, "2026-01-01T00:00:00Z stdout F %s\n", text), 0o600)
			if err != nil {
				t.Fatal(err)
			}
		}
		line(1, "second")
		if got, f := s.log(p, &corev1.PodLogOptions{Container: "main", Previous: true}); got != "second\n" {
			t.Errorf("previous: %q %v", got, f)
		}
		if got, _ := s.log(p, &corev1.PodLogOptions{Container: "main", TailLines: proto.Int64(0)}); got != "" {
			t.Errorf("tail 0: %q", got)
		}
		if _, err := os.Stat(filepath.Join(dirOf, criconfig.LogName("main", 0))); err == nil {
			t.Error("the log of a removed container is still there")
		}
		other := proto.CloneOf(p)
		other.Metadata.Uid = "other"
		if _, f := s.log(other, &corev1.PodLogOptions{Container: "main"}); f.GetReason() != string(apierrors.NotFound) {
			t.Errorf("another uid: %v", f)
		}
		w.delete("a", 1)
		time.Sleep(5 * time.Second)
		if _, err := os.Stat(dirOf); err == nil {
			t.Error("the pod's directory is still there")
		}
		w.kill()
	})
}

// Who asks for the log of a container that has none yet is told why. spec: CTR-8
func TestLogOfWaitingContainer(t *testing.T) {
	inWorld(t, func(w *world) {
		s := withLogs(w, t.TempDir())
		w.start()
		missing := edit(func(p *corev1.Pod) {
			p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "missing:1", "Always"
		})
		twice := edit(func(p *corev1.Pod) {
			p.Spec.InitContainers = []*corev1.Container{{Name: "first", Image: "host"}}
		})
		for _, x := range []struct {
			p               *corev1.Pod
			container, want string
		}{
			{w.create("creating", annotated("sandbox-error", "not now")), "main", "ContainerCreating"},
			{w.create("pulling", missing), "main", "ErrImagePull"},
			{w.create("second", twice, annotated("exit-after.first", "1h")), "main", "PodInitializing"},
		} {
			w.settle()
			o := &corev1.PodLogOptions{Container: x.container}
			want := fmt.Sprintf("container %q in pod %q is waiting to start: %s", x.container, x.p.GetMetadata().GetName(),
				x.want)
			if _, f := s.log(x.p, o); f.GetReason() != string(apierrors.BadRequest) || f.GetError() != want {
				t.Errorf("%v, want %s", f, want)
			}
			o.Previous = true
			want = fmt.Sprintf("previous terminated container %q in pod %q not found", x.container, x.p.GetMetadata().GetName())
			if _, f := s.log(x.p, o); f.GetReason() != string(apierrors.BadRequest) || f.GetError() != want {
				t.Errorf("%v, want %s", f, want)
			}
		}
		// The pod has failed without it, and stays to be looked at.
		p := w.create("failed", twice, restart("Never"), annotated("exit-after.first", "1s", "exit-code.first", "1"))
		time.Sleep(10 * time.Second)
		w.phase("failed", "Failed")
		_, f := s.log(p, &corev1.PodLogOptions{Container: "main"})
		if f.GetError() != `container "main" in pod "failed" has never been started` {
			t.Errorf("after the pod's end: %v", f)
		}
		w.kill()
	})
}

// A followed log ends with its container. spec: CTR-8
func TestFollowLog(t *testing.T) {
	dir := t.TempDir()
	inWorld(t, func(w *world) {
		s := withLogs(w, dir)
		w.start()
		p := w.create("a", restart("Never"), annotated("exit-after", "1m", "log", "hello"))
		w.settle()
		began := time.Now()
		got, f := s.log(p, &corev1.PodLogOptions{Container: "main", Follow: true})
		if d := time.Since(began); got != "hello\n" || f != nil || d < 59*time.Second || d > 61*time.Second {
			t.Errorf("got %q, %v after %s", got, f, d)
		}
		w.kill()
	})
}

// spec: CTR-1
func TestTerminationMessage(t *testing.T) {
	dir := t.TempDir()
	inWorld(t, func(w *world) {
		withLogs(w, dir)
		w.start()
		path := edit(func(p *corev1.Pod) { p.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log" })
		fallback := edit(func(p *corev1.Pod) { p.Spec.Containers[0].TerminationMessagePolicy = "FallbackToLogsOnError" })
		file := w.create("file", restart("Never"), path, annotated("exit-after", "5s"))
		w.create("log", restart("Never"), path, fallback, annotated("exit-after", "5s", "exit-code", "1", "log", "the end"))
		w.create("none", restart("Never"), path, fallback, annotated("exit-after", "5s", "log", "the end"))
		link := w.create("link", restart("Never"), path, annotated("exit-after", "5s"))
		w.settle()
		message := func(p *corev1.Pod) string {
			return filepath.Join(dir, criconfig.PodDir("default", p.GetMetadata().GetName(), p.GetMetadata().GetUid()),
				criconfig.MessageName("main", 0))
		}
		if info, err := os.Stat(message(file)); err != nil || info.Mode().Perm() != 0o666 {
			t.Errorf("the message file: %v, %v; any user of the image must be able to write it", info.Mode(), err)
		}
		if err := os.WriteFile(message(file), []byte(strings.Repeat("x", 5000)+"\xff"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(message(link)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/etc/passwd", message(link)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		for name, want := range map[string]string{"file": strings.Repeat("x", 4095) + "?", "log": "the end\n", "none": "",
			"link": ""} {
			if got := w.get(name).GetStatus().GetContainerStatuses()[0].GetState().GetTerminated().GetMessage(); got != want {
				t.Errorf("%s: %q", name, got)
			}
		}
		w.kill()
	})
}

// A container whose files cannot be made says so, and starts when they can. spec: CTR-4
func TestFilesCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	inWorld(t, func(w *world) {
		withLogs(w, dir)
		p := w.create("a", edit(func(p *corev1.Pod) {
			p.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
		}))
		podDir := filepath.Join(dir, criconfig.PodDir("default", "a", p.GetMetadata().GetUid()))
		inTheWay := filepath.Join(podDir, criconfig.MessageName("main", 0), "x")
		if err := os.MkdirAll(inTheWay, 0o700); err != nil {
			t.Fatal(err)
		}
		w.start()
		w.settle()
		c := w.phase("a", "Pending").GetStatus().GetContainerStatuses()[0].GetState().GetWaiting()
		if c.GetReason() != "CreateContainerConfigError" || c.GetMessage() == "" {
			t.Errorf("waits: %v", c)
		}
		if err := os.RemoveAll(filepath.Dir(inTheWay)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.phase("a", "Running")
	})
}

// The log of a container that runs is rotated. spec: CTR-8
func TestLogRotation(t *testing.T) {
	dir := t.TempDir()
	inWorld(t, func(w *world) {
		withLogs(w, dir)
		w.cfg.LogMaxSize = 100
		w.start()
		p := w.create("a")
		w.settle()
		path := filepath.Join(dir, criconfig.PodDir("default", "a", p.GetMetadata().GetUid()), criconfig.LogName("main", 0))
		if err := os.WriteFile(path, make([]byte, 200), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		files, err := filepath.Glob(path + ".*")
		if _, statErr := os.Stat(path); err != nil || len(files) != 1 || statErr == nil {
			t.Errorf("%v, %v", files, err)
		}
		w.kill()
	})
}
