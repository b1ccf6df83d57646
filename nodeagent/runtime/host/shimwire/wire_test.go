package shimwire

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

type message interface {
	Encode() []byte
	Decode([]byte) error
}

func TestRoundTrip(t *testing.T) {
	c := Container{
		ID: "abc", Phase: Exited, PID: 42, Born: 1 << 40, StartedAt: 1, FinishedAt: -2, ExitCode: 137, Signal: 9,
		Reason: "r", Message: "m\x00é", Warnings: []string{"", "w"}, Error: "e",
	}
	for _, m := range []message{
		&c,
		&InitRequest{SandboxID: "s", BootID: "b", Marker: 1<<63 - 1, Hostname: "h", NoView: "n"},
		&HelloReply{Version: 1, SandboxID: "s", BootID: "b", PID: 7, Born: 8, Containers: []Container{c, {}}, Error: "e",
			NoView: "n"},
		&StartRequest{
			ContainerID: "c", Args: []string{"a", "", "b"}, Env: []string{"A=1"}, Dir: "/", LogPath: "/l", StopSignal: 10,
			OOMScoreAdj: -998, SetOOMScoreAdj: true, SetUser: true, UID: 1, GID: 0, Groups: []int64{0, 5}, Unified: "/u",
			V1: []string{"/v"}, Expiry: 9, Stdin: true, ReadOnlyRoot: true, NoNewPrivs: true, SetCaps: true, Caps: 1 << 40,
			Ambient: 4, Seccomp: "\x00\xff", AppArmor: "p",
			Bundle: "/b", Joins: true,
			Mounts: []Mount{{HostPath: "/h", ContainerPath: "/c", ReadOnly: true, Recursive: true,
				Propagation: Bidirectional, Optional: true}, {}},
		},
		&SetupRequest{Start: []byte("s"), Args: []string{"", "a"}, Parent: 7, Join: true},
		&StopRequest{ContainerID: "c", Timeout: 1<<63 - 1, Begun: 9},
		&ContainerRequest{ContainerID: "c"},
		&ExecRequest{ContainerID: "c", Args: []string{"a"}, Timeout: -1},
		&CheckpointRequest{ContainerID: "c", Dir: "/d", Criu: "/criu", Timeout: 1},
		&ExecReply{ExitCode: 255, TimedOut: true, Error: "e"},
	} {
		back := reflect.New(reflect.TypeOf(m).Elem()).Interface().(message)
		if err := back.Decode(m.Encode()); err != nil || !reflect.DeepEqual(m, back) {
			t.Errorf("%T: %v\n%+v\n%+v", m, err, m, back)
		}
		// A newer speaker's fields are skipped.
		newer := Encoder{buf: m.Encode()}
		newer.String(200, "from the future")
		again := reflect.New(reflect.TypeOf(m).Elem()).Interface().(message)
		if err := again.Decode(newer.Bytes()); err != nil || !reflect.DeepEqual(m, again) {
			t.Errorf("%T with an unknown field: %v %+v", m, err, again)
		}
	}
}

func TestFrames(t *testing.T) {
	var b []byte
	want := []Frame{{1, Start, []byte("body")}, {1 << 31, Reply, []byte{}}, {0, Event, bytes.Repeat([]byte{7}, 100000)}}
	for _, f := range want {
		b = AppendFrame(b, f)
	}
	r := bytes.NewReader(b)
	for _, w := range want {
		if f, err := ReadFrame(r); err != nil || !reflect.DeepEqual(f, w) {
			t.Fatalf("%v", err)
		}
	}
	if _, err := ReadFrame(r); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	if _, err := ReadFrame(bytes.NewReader(b[:11])); err != io.ErrUnexpectedEOF {
		t.Errorf("cut off: %v", err)
	}
	if _, err := ReadFrame(bytes.NewReader([]byte{255, 255, 255, 255, 0, 0, 0, 0, 1})); !errors.Is(err, ErrMalformed) {
		t.Errorf("too large: %v", err)
	}
}

// Whatever a crash leaves of the last record, the ones before it are read.
func TestTornJournal(t *testing.T) {
	name := filepath.Join(t.TempDir(), "journal")
	if b, err := Last(name); b != nil || err != nil {
		t.Errorf("no file: %q %v", b, err)
	}
	for _, rec := range []string{"one", "two", "three"} {
		if err := Append(name, []byte(rec), rec == "three"); err != nil {
			t.Fatal(err)
		}
		if b, err := Last(name); string(b) != rec || err != nil {
			t.Errorf("%q %v", b, err)
		}
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lastSize := journalHeader + len("three")
	for cut := 1; cut <= lastSize; cut++ {
		if err := os.WriteFile(name, whole[:len(whole)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := Last(name); string(b) != "two" || err != nil {
			t.Errorf("%d bytes cut: %q %v", cut, b, err)
		}
		if err := Append(name, []byte("four"), false); err != nil {
			t.Fatal(err)
		}
		if b, err := Last(name); string(b) != "four" || err != nil {
			t.Errorf("%d bytes cut, and one record added: %q %v", cut, b, err)
		}
	}
	damaged := bytes.Clone(whole)
	damaged[len(damaged)-1] ^= 1
	if err := os.WriteFile(name, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := Last(name); string(b) != "two" || err != nil {
		t.Errorf("damaged: %q %v", b, err)
	}
}

func FuzzDecode(f *testing.F) {
	c := Container{ID: "a", Phase: Running, Warnings: []string{"x"}}
	f.Add(c.Encode())
	f.Add([]byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range []message{&Container{}, &HelloReply{}, &StartRequest{}, &ExecRequest{}} {
			_ = m.Decode(b)
		}
		_, _ = ReadFrame(bytes.NewReader(b))
	})
}
