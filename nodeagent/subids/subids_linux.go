package subids

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"monoplane.dev/internal/userids"
	"monoplane.dev/nodeagent/diskuse"
	"monoplane.dev/nodeagent/images/unpack"
)

// kinds are the errors that an answer can name, by Kind-1.
func kinds() []error { return []error{unpack.ErrHostile, unpack.ErrTooLarge, unpack.ErrNoRoom} }

// failure is an error of the other process.
type failure struct {
	text string
	is   []error
}

func (f *failure) Error() string   { return f.text }
func (f *failure) Unwrap() []error { return f.is }

func (a *answer) err() error {
	if a.Error == "" {
		return nil
	}
	f := &failure{text: a.Error}
	if all := kinds(); a.Kind > 0 && a.Kind <= len(all) {
		f.is = append(f.is, all[a.Kind-1])
	}
	if a.Errno != 0 {
		f.is = append(f.is, syscall.Errno(a.Errno))
	}
	return f
}

// identity maps each id to itself, and those that there are not to nobody's, or root's.
func identity(maps userids.Maps) unpack.Shift {
	same := func(all []userids.Range) (out []unpack.IDRange) {
		for _, r := range all {
			out = append(out, unpack.IDRange{Container: r.Inside, Host: r.Inside, Size: r.Size})
		}
		return out
	}
	return unpack.Shift{UIDs: same(maps.Users), GIDs: same(maps.Groups)}
}

// Tar is unpack.Tar with the owners of the archive. The files of ids that there are not belong to nobody, or to root
// where that one is not there either.
func Tar(ctx context.Context, maps userids.Maps, dir string, r io.Reader, o unpack.Options) (unpack.Stats, error) {
	o.Owners, o.Shift = true, identity(maps)
	a, err := run(ctx, maps, task{Tar: &tarTask{dir, o}}, r)
	return a.Stats, err
}

// Merge is unpack.Merge with the owners of the layers.
func Merge(ctx context.Context, maps userids.Maps, to string, layers []string, o unpack.MergeOptions) error {
	o.Owners, o.Shift = true, identity(maps)
	_, err := run(ctx, maps, task{Merge: &mergeTask{to, layers, o}}, nil)
	return err
}

// Top is unpack.Top with the owners of the layers.
func Top(ctx context.Context, maps userids.Maps, to string, layers []unpack.Layer, o unpack.MergeOptions) error {
	o.Owners, o.Shift = true, identity(maps)
	_, err := run(ctx, maps, task{Top: &topTask{to, layers, o}}, nil)
	return err
}

// Upper is unpack.Upper with the owner of the layer.
func Upper(ctx context.Context, maps userids.Maps, dir, layer string) error {
	_, err := run(ctx, maps, task{Upper: &upperTask{dir, layer}}, nil)
	return err
}

// Give is ownership.Give, of a group as pods see it.
func Give(
	ctx context.Context, maps userids.Maps, dir string, group int64, forReading bool, policy string,
) error {
	_, err := run(ctx, maps, task{Give: &giveTask{dir, group, forReading, policy}}, nil)
	return err
}

// Measure is diskuse.Of, also of what users of containers have closed to others, or one with the id of this process to
// itself. Only for those is there another process; the zero maps are for who has no such users.
func Measure(ctx context.Context, maps userids.Maps, dir string) (diskuse.Size, error) {
	size, err := diskuse.Of(ctx, dir)
	if len(maps.Users) == 0 || !errors.Is(err, fs.ErrPermission) {
		return size, err
	}
	a, failed := run(ctx, maps, task{Measure: dir}, nil)
	if failed != nil && a.Size.Bytes < size.Bytes { // It has come no further.
		return size, errors.Join(err, failed)
	}
	return a.Size, failed
}

// run has a process do a task, for which it may read from in.
func run(ctx context.Context, maps userids.Maps, what task, in io.Reader) (answer, error) {
	text, err := json.Marshal(what)
	if err != nil {
		return answer{}, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args, cmd.Dir = []string{Argv0}, "/"
	cmd.Env = []string{"GOMAXPROCS=2", "GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	maps.Prepare(cmd.SysProcAttr)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	to, err := cmd.StdinPipe()
	if err != nil {
		return answer{}, err
	}
	runtime.LockOSThread() // The death signal comes with the end of the thread, which others may bring about.
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return answer{}, fmt.Errorf("%w: no user namespace can be made: %w", ErrIDs, err)
	}
	if err := maps.Apply(ctx, cmd.Process.Pid); err != nil {
		_ = to.Close()
		_ = cmd.Wait() // Without a task it ends with an error.
		if ctx.Err() != nil {
			return answer{}, context.Cause(ctx)
		}
		return answer{}, fmt.Errorf("%w: %w", ErrIDs, err)
	}
	unread := feed(to, append(text, '\n'), in)
	ended := cmd.Wait()
	if ctx.Err() != nil {
		return answer{}, context.Cause(ctx)
	}
	if unread != nil {
		return answer{}, unread
	}
	var a answer
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		return answer{}, fmt.Errorf("the process with the ids of pods ended without an answer: %w: %s",
			errors.Join(ended, err), strings.TrimSpace(said.String()))
	}
	return a, a.err()
}

// feed writes a task and what it is about, and closes the pipe. What cannot be written is the process's to explain;
// what cannot be read is returned.
func feed(to io.WriteCloser, task []byte, in io.Reader) error {
	defer to.Close()
	_, err := to.Write(task)
	if in == nil || err != nil { // It has ended, and says why.
		return nil
	}
	from := &source{Reader: in}
	const buffer = 256 << 10
	_, _ = io.CopyBuffer(struct{ io.Writer }{to}, from, make([]byte, buffer))
	return from.err
}

// source notes why no more can be read.
type source struct {
	io.Reader
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
