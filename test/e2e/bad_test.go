package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"monoplane.dev/test/lifecycle"
)

// TestBadInput plays the scenarios of bad input with processes of this machine, each beside a neighbour that goes on.
func TestBadInput(t *testing.T) {
	program := binary(t, "act")
	c := shared(t)
	namespace := c.namespace(t)
	all, err := lifecycle.Bad("host")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if s.NeedsRoot && os.Geteuid() != 0 {
				t.Skip("it needs root")
			}
			b := newBad(t, c.scenes(t, namespace), c.client(t), namespace, "host", reserve)
			b.places.Seen = b.places.Place
			b.play(t, s, func(s *lifecycle.Scenario) *corev1.Pod { return s.Real("host", program, b.journal) })
		})
	}
}

// bad is what surrounds the pod of one scenario of bad input.
type bad struct {
	scenes

	client    kubernetes.Interface
	namespace string
	name      string // of the pod
	good      string // an image
	uid       int    // whose the files beside the journal are
	journal   string
	program   []byte
	places    lifecycle.Placeholders
	closed    *reserved
	ended     *atomic.Bool // what answers at ENDLESS ends its answers
	registry  *reserved
	images    http.Handler
}

// newBad makes the surroundings of a scenario, without registries; reserve reserves ports where the cluster is.
func newBad(t *testing.T, p scenes, client kubernetes.Interface, namespace, good string,
	reserve func(*testing.T) *reserved,
) *bad {
	t.Helper()
	journal := newJournal(t)
	b := &bad{scenes: p, client: client, namespace: namespace, good: good, journal: journal, ended: &atomic.Bool{},
		closed: reserve(t), uid: os.Geteuid()}
	var err error
	if b.program, err = os.ReadFile(binary(t, "act")); err != nil {
		t.Fatal(err)
	}
	endless := reserve(t)
	if err := endless.serve(b.answer); err != nil {
		t.Fatal(err)
	}
	b.places = lifecycle.Placeholders{Place: filepath.Dir(journal), Closed: b.closed.port, Endless: endless.port}
	err = errors.Join(os.Symlink("/etc", b.at("escape")), os.WriteFile(b.at("hungry"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bad) at(name string) string { return filepath.Join(b.places.Place, name) }

// answer answers, and does not come to an end until it is told to.
func (b *bad) answer(w http.ResponseWriter, r *http.Request) {
	slowly := time.NewTicker(20 * time.Millisecond) // what is read of an answer comes to an end at 10 KiB
	defer slowly.Stop()
	for !b.ended.Load() {
		if _, err := io.WriteString(w, "x"); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush() // an answer that cannot be sent ends with its request
		select {
		case <-slowly.C:
		case <-r.Context().Done():
			return
		}
	}
}

// play plays a scenario beside its neighbour; pod returns the pod of either.
func (b *bad) play(t *testing.T, s *lifecycle.Scenario, pod func(*lifecycle.Scenario) *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sceneTime)
	defer cancel()
	s, err := s.Filled(b.places)
	if err != nil {
		t.Fatal(err)
	}
	beside := s.Neighbour()
	besideSeen := b.begin(ctx, t, beside, pod(beside))
	run := func(s *lifecycle.Scenario, seen *lifecycle.History) {
		t.Helper()
		own := *b
		own.name = s.Name
		if err := s.Run(ctx, &own, seen); err != nil {
			t.Error(err)
		}
	}
	run(beside, besideSeen)
	run(s, b.begin(ctx, t, s, pod(s)))
	run(beside, besideSeen)
	for _, name := range []string{s.Name, beside.Name} {
		err := b.scenes.Delete(t.Context(), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
}

// begin creates a scenario's pod and returns what is seen of it from then on.
func (b *bad) begin(ctx context.Context, t *testing.T, s *lifecycle.Scenario, pod *corev1.Pod) *lifecycle.History {
	t.Helper()
	pod.Name = s.Name
	seen := &lifecycle.History{}
	b.follow(ctx, t, pod.Name, seen)
	go readMarks(ctx, b.journal, seen)
	b.create(t, pod)
	return seen
}

// Events implements lifecycle.Driver.
func (b *bad) Events(ctx context.Context) ([]string, error) {
	return onePod{b.scenes, b.name}.Events(ctx)
}

// Delete implements lifecycle.Driver.
func (b *bad) Delete(ctx context.Context, graceSeconds *int64) error {
	return onePod{b.scenes, b.name}.Delete(ctx, graceSeconds)
}

// Patch implements lifecycle.Driver.
func (b *bad) Patch(ctx context.Context, subresource string, patch []byte) error {
	return onePod{b.scenes, b.name}.Patch(ctx, subresource, patch)
}

// Config implements lifecycle.Surroundings.
func (b *bad) Config(ctx context.Context, name string, data map[string]string) error {
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
	_, err := b.client.CoreV1().ConfigMaps(b.namespace).Create(ctx, made, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = b.client.CoreV1().ConfigMaps(b.namespace).Update(ctx, made, metav1.UpdateOptions{})
	}
	return err
}

// Image implements lifecycle.Surroundings.
func (b *bad) Image(ctx context.Context, container, image string) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		p, err := b.Get(ctx, b.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i := range p.Spec.Containers {
			if c := &p.Spec.Containers[i]; c.Name == container {
				c.Image = cmp.Or(image, b.good)
			}
		}
		_, err = b.Update(ctx, p, metav1.UpdateOptions{})
		return err
	})
}

// Now implements lifecycle.Surroundings.
func (b *bad) Now(ctx context.Context, what string) error {
	switch what {
	case "the program is there":
		aside := b.at("aside")
		err := writeProgram(aside, b.program)
		return errors.Join(err, os.Chown(aside, b.uid, -1), os.Rename(aside, b.at("late")))
	case "the directory is there":
		return errors.Join(os.Mkdir(b.at("late"), 0o700), os.Chown(b.at("late"), b.uid, -1))
	case "the link is a directory":
		return errors.Join(os.Remove(b.at("escape")), os.Mkdir(b.at("escape"), 0o700),
			os.Chown(b.at("escape"), b.uid, -1))
	case "the hunger is over":
		return os.Remove(b.at("hungry"))
	case "the port is open":
		return b.closed.serve(func(http.ResponseWriter, *http.Request) {})
	case "the server comes to an end":
		b.ended.Store(true)
		return nil
	case "the registry answers":
		return b.registry.serve(b.images.ServeHTTP)
	case "the password is wrong":
		return b.password(ctx, "wrong")
	case "the password is right":
		return b.password(ctx, "right")
	default:
		return fmt.Errorf("nobody knows how to do that: %s", what)
	}
}

// password creates or replaces the Secret with which the private registry is asked.
func (b *bad) password(ctx context.Context, word string) error {
	s, err := pullSecret("pull", b.places.Private, word)
	if err != nil {
		return err
	}
	_, err = b.client.CoreV1().Secrets(b.namespace).Create(ctx, s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = b.client.CoreV1().Secrets(b.namespace).Update(ctx, s, metav1.UpdateOptions{})
	}
	return err
}

// pullSecret returns a Secret with the password of user for a registry.
func pullSecret(name, host, password string) (*corev1.Secret, error) {
	text, err := json.Marshal(map[string]any{"auths": map[string]any{
		host: map[string]string{"username": "user", "password": password}}})
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: text}}, err
}

// reserved is a port of 127.0.0.1 that nobody else can have, and at which nobody listens until serve.
type reserved struct {
	t    *testing.T
	fd   int
	port int
}

func reserve(t *testing.T) *reserved {
	t.Helper()
	return reserveFor(t, newSocket)
}

func newSocket() (int, error) {
	return syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
}

// reserveFor reserves a port by a new socket, which may be of another network than the test's.
func reserveFor(t *testing.T, socket func() (int, error)) *reserved {
	t.Helper()
	fd, err := socket()
	if err != nil {
		t.Fatal(err)
	}
	if err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	r := &reserved{t: t, fd: fd, port: at.(*syscall.SockaddrInet4).Port} //nolint:forcetypeassert // as it was bound
	t.Cleanup(func() {
		if r.fd >= 0 {
			_ = syscall.Close(r.fd) // it was never used
		}
	})
	return r
}

func (r *reserved) address() string { return fmt.Sprintf("127.0.0.1:%d", r.port) }

// serve listens until the test ends.
func (r *reserved) serve(handler http.HandlerFunc) error {
	const waiting = 128
	if err := syscall.Listen(r.fd, waiting); err != nil {
		return err
	}
	file := os.NewFile(uintptr(r.fd), "reserved") //nolint:gosec // it is no negative number
	r.fd = -1
	l, err := net.FileListener(file) // a copy
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	server := &http.Server{Handler: handler} //nolint:gosec // its clients are the test's own
	go func() { _ = server.Serve(l) }()
	r.t.Cleanup(func() { _ = server.Close() })
	return nil
}
