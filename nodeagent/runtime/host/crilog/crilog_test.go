package crilog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func copyAll(t *testing.T, r io.Reader) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Copy("stdout", r); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
		at, rest, _ := strings.Cut(line, " ")
		if line == "" {
			continue
		}
		if when, err := time.Parse(time.RFC3339Nano, at); err != nil || time.Since(when) > time.Minute {
			t.Fatalf("time of %q: %v", line, err)
		}
		rest, ok := strings.CutPrefix(rest, "stdout ")
		if !ok {
			t.Fatalf("stream of %q", line)
		}
		out = append(out, rest)
	}
	return out
}

// spec: CTR-8
func TestLines(t *testing.T) {
	full := strings.Repeat("x", MaxLine)
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"nothing":          {"", nil},
		"lines":            {"a\nb\n", []string{"F a", "F b"}},
		"no newline":       {"a\nb", []string{"F a", "P b"}},
		"empty lines":      {"\n\na\n", []string{"F ", "F ", "F a"}},
		"longest":          {full + "\n", []string{"F " + full}},
		"longer by one":    {full + "y\n", []string{"P " + full, "F y"}},
		"twice, no end":    {full + full, []string{"P " + full, "P " + full}},
		"twice and a line": {full + full + "\nb\n", []string{"P " + full, "F " + full, "F b"}},
	} {
		for how, r := range map[string]io.Reader{
			"at once": strings.NewReader(c.in), "by bytes": iotest.OneByteReader(strings.NewReader(c.in)),
			"by halves":    iotest.HalfReader(strings.NewReader(c.in)),
			"with the end": iotest.DataErrReader(strings.NewReader(c.in)),
		} {
			if got := copyAll(t, r); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%s, %s: %d entries %.60q, want %d", name, how, len(got), got, len(c.want))
			}
		}
	}
}

// Joining the entries gives back what was written, whatever it was and however it came.
//
// spec: CTR-8
func TestNothingIsLost(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewSource(seed))
	for range 50 {
		var in bytes.Buffer
		for range rnd.Intn(20) {
			in.WriteString(strings.Repeat("z", rnd.Intn(3*MaxLine)))
			in.WriteByte('\n')
		}
		var got strings.Builder
		for _, e := range copyAll(t, &randomReader{rnd, in.Bytes()}) {
			got.WriteString(e[2:])
			if len(e)-2 > MaxLine {
				t.Fatalf("an entry of %d bytes", len(e)-2)
			}
			if e[0] == 'F' {
				got.WriteByte('\n')
			}
		}
		if got.String() != in.String() {
			t.Fatal("the entries do not add up to the input")
		}
	}
}

type randomReader struct {
	rnd  *rand.Rand
	left []byte
}

func (r *randomReader) Read(b []byte) (int, error) {
	if len(r.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:1+r.rnd.Intn(len(b))], r.left)
	r.left = r.left[n:]
	return n, nil
}

// A full disk costs log entries and nothing else.
func TestFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	l, err := Open("/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Copy("stdout", strings.NewReader("a\nb\n")); err != nil {
		t.Error(err)
	}
	if l.Dropped() == 0 {
		t.Error("nothing was counted as dropped")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestReadError(t *testing.T) {
	l, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := l.Copy("stdout", iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

func BenchmarkCopy(b *testing.B) {
	l, err := Open(os.DevNull)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	in := bytes.Repeat([]byte("a line of an ordinary length, as programs print them\n"), 1000)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if err := l.Copy("stdout", bytes.NewReader(in)); err != nil {
			b.Fatal(err)
		}
	}
}
