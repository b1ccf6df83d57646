package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/images"
)

// What monoplane image does, from a registry to another directory and away.
func TestImageCommands(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ref := strings.TrimPrefix(server.URL, "http://") + "/app:v1"
	img, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	to, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(to, img); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	dir := t.TempDir()
	archive := filepath.Join(dir, "saved.tar")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"pull --image-dir DIR/a " + ref, 0, ref},
		{"list --image-dir DIR/a", 0, ref},
		{"save --image-dir DIR/a -o " + archive + " " + ref, 0, ""},
		{"load --image-dir DIR/b " + archive, 0, ref},
		{"rm --image-dir DIR/b " + ref + " none", 1, "removed " + ref},
		{"list --image-dir DIR/b", 0, "NAME"},
		{"save --image-dir DIR/b -o DIR/none.tar none", 1, `image "none": not found`},
		{"load --image-dir DIR/b DIR/none.tar", 1, "no such file"},
		{"pull --image-dir DIR/a --registry-config DIR/none.yaml " + ref, 1, "--registry-config"},
		{"pull --image-dir DIR/a", 1, "requires at least 1 arg"},
		{"frobnicate", 1, "unknown command"},
	} {
		args := append([]string{"image"}, strings.Fields(strings.ReplaceAll(c.args, "DIR", dir))...)
		var out, errs bytes.Buffer
		code := run(t.Context(), programName, args, &out, &errs)
		if said := out.String() + errs.String(); code != c.code || !strings.Contains(said, c.says) {
			t.Errorf("%v: %d, %s; want %d and %q", args, code, said, c.code, c.says)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 3 {
		t.Errorf("%v, %v; want the two directories and the archive", left, err)
	}
	if info, err := os.Stat(archive); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v", info, err)
	}
}

// Of images for another machine that are loaded, a warning says so; of those for this one there is none.
func TestLoadedForAnotherPlatform(t *testing.T) {
	for architecture, warned := range map[string]bool{"s390x": true, runtime.GOARCH: false} {
		img, err := random.Image(1000, 1)
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		config = config.DeepCopy()
		config.OS, config.Architecture = "linux", architecture
		dir := t.TempDir()
		archive := filepath.Join(dir, "image.tar")
		img, err = mutate.ConfigFile(img, config)
		if err == nil {
			err = tarball.WriteToFile(archive, name.MustParseReference("app:v1"), img)
		}
		if err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		args := []string{"image", "load", "--image-dir", filepath.Join(dir, "images"), archive}
		if code := run(t.Context(), programName, args, &out, &errs); code != 0 {
			t.Fatalf("%d: %s", code, errs.String())
		}
		if out.String() != "docker.io/library/app:v1\n" {
			t.Errorf("%s: %q", architecture, out.String())
		}
		want := ""
		if warned {
			want = "warning: docker.io/library/app:v1 is for the platform linux/s390x, and does not run on this machine, " +
				"linux/" + runtime.GOARCH + "\n"
		}
		if errs.String() != want {
			t.Errorf("%s: %q, want %q", architecture, errs.String(), want)
		}
	}
}

// On no terminal, each step of a layer is a line.
func TestPullProgressLines(t *testing.T) {
	var out strings.Builder
	p := newPullProgress(&out)
	const digest = "sha256:0123456789abcdef"
	for _, at := range []images.Progress{
		{Digest: digest, Phase: images.Downloading, Done: 1, Total: 2_500_000},
		{Digest: digest, Phase: images.Downloading, Done: 2, Total: 2_500_000},
		{Digest: digest, Phase: images.Complete, Done: 3, Total: 2_500_000},
	} {
		p.update(at)
	}
	p.end()
	if want := "0123456789ab Downloading 2.5 MB\n0123456789ab Complete 2.5 MB\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// A line of bars is never wider than the terminal, whatever a registry says.
func TestPullProgressBars(t *testing.T) {
	for width := 1; width < 150; width++ {
		for _, done := range []int64{0, 1, 50, 100, 1 << 40} {
			for _, total := range []int64{0, 1, 100, 1 << 60} {
				at := images.Progress{Digest: "sha256:0123456789abcdef", Phase: images.Downloading, Done: done, Total: total}
				if got := line(at, width); len(got) >= max(2, width) {
					t.Fatalf("%d columns: %q", width, got)
				}
			}
		}
	}
	if got := line(images.Progress{Digest: "sha256:0123456789abcdef", Phase: images.Downloading, Done: 50, Total: 100},
		80); !strings.Contains(got, "====") || !strings.HasSuffix(got, "50 B / 100 B") {
		t.Errorf("%q", got)
	}
}

// However many layers an image has, its bars stay on the screen: what is drawn over them begins where they begin, and
// no line of them has scrolled away.
func TestPullProgressOnATerminal(t *testing.T) {
	for rows := 2; rows < 12; rows++ {
		s := &screen{t: t, rows: rows}
		p := &pullProgress{out: s, width: 60, rows: rows}
		const layers = 20
		step := func(i int, phase images.Phase) {
			p.last = time.Time{} // Nothing is left out for being too soon.
			p.update(images.Progress{Digest: fmt.Sprintf("sha256:%012d", i), Phase: phase, Total: 100})
		}
		for i := range layers {
			step(i, images.Downloading)
			if all := i+1 < rows; all != !strings.Contains(s.String(), "complete") {
				t.Fatalf("%d rows and %d layers:\n%s", rows, i+1, s)
			}
		}
		for i := range layers {
			step(i, images.Complete)
			if want := fmt.Sprintf("%d of %d complete", i+1, layers); !strings.Contains(s.String(), want) {
				t.Fatalf("%d rows: no %q in\n%s", rows, want, s)
			}
			left := layers - i - 1
			if got := strings.Count(s.String(), string(images.Downloading)); got != min(left, rows-2) {
				t.Fatalf("%d rows: %d layers of %d that are left are shown:\n%s", rows, got, left, s)
			}
		}
		p.end()
		if got := strings.TrimSpace(s.String()); got != "20 of 20 complete" {
			t.Errorf("%d rows: at the end there is\n%s", rows, got)
		}
	}
}

// Bars are drawn on terminals that can, in their size, and lines are written to everything else.
func TestPullProgressKnowsTerminals(t *testing.T) {
	leader, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	defer leader.Close()
	if err := unix.IoctlSetWinsize(int(leader.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 7, Col: 61}); err != nil {
		t.Fatal(err)
	}
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for _, c := range []struct {
		out         io.Writer
		term        string
		width, rows int
	}{{leader, "xterm", 61, 7}, {leader, "dumb", 0, 0}, {plain, "xterm", 0, 0}, {new(bytes.Buffer), "xterm", 0, 0}} {
		t.Setenv("TERM", c.term)
		if p := newPullProgress(c.out); p.width != c.width || p.rows != c.rows {
			t.Errorf("%T, TERM=%s: %d columns and %d rows; want %d and %d", c.out, c.term, p.width, p.rows, c.width, c.rows)
		}
	}
}

// What went wrong and is tried again is said once, above the bars, which go on below.
func TestPullProgressTriesAgain(t *testing.T) {
	why := errors.New("registry.example.com: it has sent less than it should")
	var out strings.Builder
	newPullProgress(&out).again(why)
	if want := "trying again: " + why.Error() + "\n"; out.String() != want {
		t.Errorf("on no terminal: %q, want %q", out.String(), want)
	}
	s := &screen{t: t, rows: 12}
	p := &pullProgress{out: s, width: 30, rows: 12}
	p.again(why)
	for i := range 3 {
		p.update(images.Progress{Digest: fmt.Sprintf("sha256:%012d", i), Phase: images.Downloading, Total: 100})
	}
	p.again(why)
	p.update(images.Progress{Digest: "sha256:000000000001", Phase: images.Complete, Total: 100})
	p.end()
	got := strings.Split(strings.TrimSpace(s.String()), "\n")
	const said = "trying again: registry.exampl"
	if len(got) != 5 || got[0] != said || got[1] != said || !strings.Contains(got[3], "Complete") {
		t.Errorf("on a terminal:\n%s", s)
	}
}

// screen is a terminal that knows what the bars need. A line that leaves it at the top is an error.
type screen struct {
	t     *testing.T
	rows  int
	lines []string // Down to the lowest that was ever written.
	at    int
}

func (s *screen) String() string { return strings.Join(s.lines, "\n") }

func (s *screen) Write(b []byte) (int, error) {
	for rest := string(b); rest != ""; {
		var n int
		switch text, after, _ := strings.Cut(rest, "\n"); {
		case strings.HasPrefix(rest, "\x1b[J"):
			s.lines, rest = s.lines[:s.at], rest[len("\x1b[J"):]
		case strings.HasPrefix(rest, "\x1b["):
			if _, err := fmt.Sscanf(rest, "\x1b[%dA", &n); err != nil || n > s.at {
				s.t.Fatalf("%q: up from line %d", rest, s.at)
			}
			s.at -= n
			_, rest, _ = strings.Cut(rest, "A")
		default:
			if s.at == len(s.lines) {
				s.lines = append(s.lines, "")
			}
			s.lines[s.at] = strings.TrimSuffix(strings.TrimPrefix(text, "\r"), "\x1b[K")
			s.at, rest = s.at+1, after
			if s.at >= s.rows {
				s.t.Fatalf("%d lines on %d rows:\n%s", s.at, s.rows, s)
			}
		}
	}
	return len(b), nil
}
