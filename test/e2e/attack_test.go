package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mpcorev1rpc "monoplane.dev/api/core/v1/rpc"
	mpmetav1 "monoplane.dev/api/meta/v1"
)

// addresses returns the host and port of each API.
func (c *cluster) addresses(t *testing.T) map[string]string {
	t.Helper()
	m := regexp.MustCompile(`gRPC +(\S+)`).FindStringSubmatch(c.stdout.String())
	if m == nil {
		t.Fatalf("no gRPC address in %s", c.stdout)
	}
	return map[string]string{"REST": strings.TrimPrefix(c.url, "https://"), "gRPC": m[1]}
}

// memory returns what the server holds now, and what it held at most since forgetPeak, in bytes.
func (c *cluster) memory(t *testing.T) (now, peak int) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.proc.Pid))
	if err != nil {
		t.Fatal(err)
	}
	field := func(name string) int {
		m := regexp.MustCompile(`(?m)^` + name + `:\s+(\d+) kB$`).FindSubmatch(data)
		if m == nil {
			t.Fatalf("no %s in %s", name, data)
		}
		kb, _ := strconv.Atoi(string(m[1])) // The expression lets digits through only.
		return kb << 10
	}
	return field("VmRSS"), field("VmHWM")
}

func (c *cluster) forgetPeak(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", c.proc.Pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// attacker is an HTTP/2 connection without credentials, whose frames the test makes itself.
type attacker struct {
	net.Conn
	framer *http2.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
}

// attack connects; it reads what the server sends, and forgets it, if reads is set.
func attack(ctx context.Context, address string, reads bool, settings ...http2.Setting) (*attacker, error) {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	a := &attacker{Conn: conn, framer: http2.NewFramer(conn, nil)}
	a.hpack = hpack.NewEncoder(&a.block)
	if reads {
		go func() { _, _ = io.Copy(io.Discard, conn) }()
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil, err
	}
	return a, a.framer.WriteSettings(settings...)
}

// open begins a request with the given number of one-byte fields, which the server has to expand, and leaves it open.
func (a *attacker) open(stream uint32, path string, fields int, more ...hpack.HeaderField) error {
	a.block.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "x"},
		{Name: ":path", Value: path},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}, {Name: "a", Value: ""},
	}, more...) {
		if err := a.hpack.WriteField(f); err != nil {
			return err
		}
	}
	// The field "a" is the newest of the dynamic table, or near it: any of the newest will do.
	a.block.Write(bytes.Repeat([]byte{0x80 | 62}, fields))
	for first := true; first || a.block.Len() > 0; first = false {
		piece := a.block.Next(16 << 10)
		var err error
		if first {
			err = a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: piece,
				EndHeaders: a.block.Len() == 0})
		} else {
			err = a.framer.WriteContinuation(stream, a.block.Len() == 0, piece)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// What anybody can make the server hold stays within a bound, whatever they send.
//
// spec: OBJ-15, SEC-2
func TestUnauthenticatedMemory(t *testing.T) {
	const bound = 150 << 20
	c := newCluster(t)
	admin := c.http(t)
	for api, address := range c.addresses(t) {
		path := map[string]string{"REST": "/api/v1/namespaces/default/pods", "gRPC": "/monoplane.core.v1.Pods/Create"}[api]
		for _, x := range []struct {
			name        string
			connections int
			// send does its worst on a connection; it ends with an error when the server has closed it.
			send func(a *attacker) error
			// reads says whether the client takes what the server answers.
			reads bool
		}{
			{"headers that expand to 16 MB each", 1, func(a *attacker) error {
				for stream := uint32(1); stream < 2*18; stream += 2 {
					if err := a.open(stream, path, 480_000); err != nil {
						return err
					}
				}
				return nil
			}, true},
			{"a thousand requests whose headers expand", 20, func(a *attacker) error {
				for stream := uint32(1); stream < 2000; stream += 2 {
					if err := a.open(stream, path, 1800); err != nil {
						return err
					}
				}
				return nil
			}, false},
			{"headers that never end", 20, func(a *attacker) error {
				a.block.Reset()
				if err := a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1,
					BlockFragment: []byte{0x40, 1, 'a', 0}}); err != nil {
					return err
				}
				for range 600 {
					if err := a.framer.WriteContinuation(1, false, bytes.Repeat([]byte{0x80 | 62}, 16<<10)); err != nil {
						return err
					}
				}
				return nil
			}, true},
			{"frames that are announced, but do not come", 300, func(a *attacker) error {
				_, err := a.Write([]byte{0x10, 0, 0, byte(http2.FrameData), 0, 0, 0, 0, 1}) // 1 MiB for stream 1
				return err
			}, true},
			{"rapid reset", 10, func(a *attacker) error {
				for stream := uint32(1); stream < 20_000; stream += 2 {
					if err := a.open(stream, path, 0); err != nil {
						return err
					}
					if err := a.framer.WriteRSTStream(stream, http2.ErrCodeCancel); err != nil {
						return err
					}
				}
				return nil
			}, true},
			{"answers that are not read", 20, func(a *attacker) error {
				for i := range 100_000 {
					if err := a.framer.WritePing(false, [8]byte{byte(i)}); err != nil {
						return err
					}
					if err := a.framer.WriteSettings(); err != nil {
						return err
					}
				}
				return nil
			}, false},
			{"calls whose deadlines are years away", 300, func(a *attacker) error {
				for stream := uint32(1); stream < 100; stream += 2 {
					if err := a.open(stream, path, 1800, hpack.HeaderField{Name: "grpc-timeout", Value: "99999999H"}); err != nil {
						return err
					}
				}
				return a.Close()
			}, true},
		} {
			t.Run(api+"/"+x.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				c.forgetPeak(t)
				before, _ := c.memory(t)
				var wg sync.WaitGroup
				var conns sync.Map
				for range x.connections {
					wg.Go(func() {
						a, err := attack(ctx, address, x.reads)
						if err != nil {
							return // its place was taken by a newer one
						}
						conns.Store(a, nil)
						_ = a.SetWriteDeadline(time.Now().Add(3 * time.Second)) // a server that waits need not be waited for
						_ = x.send(a)                                           // the server may close the connection
					})
				}
				wg.Wait()
				// The server has read all that it will once it answers somebody else.
				if got := send(t, admin, "GET", c.url+"/api/v1/namespaces", "", ""); got.code != 200 {
					t.Errorf("the administrator gets %d %s", got.code, got.body)
				}
				if _, peak := c.memory(t); peak-before > bound {
					t.Errorf("%d MB more than the %d before; the bound is %d MB", (peak-before)>>20, before>>20, bound>>20)
				} else {
					t.Logf("%d MB more than the %d before", (peak-before)>>20, before>>20)
				}
				conns.Range(func(k, _ any) bool { _ = k.(*attacker).Close(); return true })
			})
		}
	}
}

// flood keeps connections to address open that never show who they are, until ctx ends: as soon as the server closes
// one, another comes.
func flood(ctx context.Context, wg *sync.WaitGroup, address string, connections int, opened *atomic.Int64) {
	dialer := net.Dialer{}
	for i := range connections {
		wg.Go(func() {
			for ctx.Err() == nil {
				raw, err := dialer.DialContext(ctx, "tcp", address)
				if err != nil {
					continue
				}
				opened.Add(1)
				stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
				conn := raw
				switch i % 4 {
				case 1: // the beginning of a handshake, and no more
					_, _ = raw.Write([]byte{22, 3, 1, 2, 0, 1})
				case 2: // a handshake, and no request
					conn = tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
					_ = conn.(*tls.Conn).HandshakeContext(ctx) // its place may be taken
				}
				_, _ = io.Copy(io.Discard, conn)
				stop()
				_ = raw.Close()
			}
		})
	}
}

// withDescriptors starts a cluster that may open so many files.
func withDescriptors(t *testing.T, n int) *cluster {
	t.Helper()
	dir := shortDir(t)
	limited := filepath.Join(t.TempDir(), "monoplane")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d\nexec %s \"$@\"\n", n, binary(t, "monoplane"))
	if err := writeProgram(limited, []byte(script)); err != nil {
		t.Fatal(err)
	}
	c, err := start(limited, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.end(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("stderr ends with:\n%s", c.stderr.tail(40))
		}
	})
	return c
}

// Whoever may run commands cannot use up the file descriptors either: those for which there are none are refused, and
// the server goes on.
func TestExecsAndDescriptors(t *testing.T) {
	t.Parallel()
	const limit, execs, each = 512, 60, 8
	const served = limit * 6 / 32 / each / 2 // The user's half of them.
	c := withDescriptors(t, limit)
	k := c.kubectl(t, "default")
	k.sleeper(t, "runs")
	api := c.dial(t)
	open := func() int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.proc.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := open()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run := func(ctx context.Context, command ...string) (begins string, err error) {
		s, err := api.Pods.Exec(ctx)
		if err != nil {
			return "", err
		}
		if err := s.Send(&mpcorev1rpc.ExecPodRequest{Namespace: "default", Name: "runs", Command: command, Stdout: true,
			Stderr: true, Stdin: true}); err != nil {
			return "", err
		}
		out, err := s.Recv()
		return string(out.GetData()), err
	}
	running, refused := 0, 0
	for range execs {
		switch begins, err := run(ctx, "sh", "-c", "echo runs; exec sleep 1000"); {
		case err == nil && begins == "runs\n":
			running++
		case status.Code(err) == codes.ResourceExhausted:
			refused++
		default:
			t.Fatalf("%q, %v", begins, err)
		}
	}
	if took := open() - before; running != served || refused != execs-served || took > served*each {
		t.Errorf("%d commands run with %d descriptors, %d were refused; want %d with %d at most, and %d", running, took,
			refused, served, served*each, execs-served)
	}
	k.ok(t, "create configmap c --from-literal=a=b")
	cancel()
	eventually(t, "a command runs again", func() (bool, string) {
		begins, err := run(t.Context(), "echo", "again")
		return begins == "again\n", fmt.Sprint(begins, err)
	})
	k.ok(t, "delete pod runs --now")
}

// Nobody without credentials can use up the file descriptors: the server goes on, with few of them, and its clients,
// its store and its pods do too.
//
// spec: OBJ-15, SEC-2
func TestDescriptors(t *testing.T) {
	c := withDescriptors(t, 256)
	k := c.kubectl(t, "default")
	watch, err := c.client(t).CoreV1().ConfigMaps("default").Watch(t.Context(),
		metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var opened atomic.Int64
	for _, address := range c.addresses(t) {
		flood(ctx, &wg, address, 150, &opened)
	}
	eventually(t, "the flood", func() (bool, string) { return opened.Load() > 300, fmt.Sprint(opened.Load()) })

	// On a very busy machine a client may lose its place before it has shown who it is, and has to try again.
	for i := range 5 {
		name := fmt.Sprintf("c%d", i)
		k.until(t, "create configmap "+name+" --from-literal=a=b", `created|already exists`)
		if e, ok := <-watch.ResultChan(); !ok {
			t.Fatal("the watch has ended")
		} else if m, err := objectName(e.Object); err != nil || m != name {
			t.Fatalf("event %v, %v", e, err)
		}
	}
	pods := c.pods(t, "default")
	pods.run(t, sleeper("p"))
	k.until(t, "delete pod p", `deleted|not found`)
	if err := c.clientGRPC(t); err != nil {
		t.Errorf("over gRPC: %v", err)
	}
	select {
	case <-c.exited:
		t.Fatalf("the server has ended with code %d\n%s", c.code, c.stderr.tail(20))
	default:
	}
	t.Logf("%d connections were opened", opened.Load())
}

// clientGRPC makes a call on a new gRPC connection.
func (c *cluster) clientGRPC(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := c.dial(t).Namespaces.Get(ctx, &mpmetav1.GetRequest{Name: "default"})
	return err
}

func objectName(o any) (string, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return "", err
	}
	return m.GetName(), nil
}
