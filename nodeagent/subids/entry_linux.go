package subids

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"syscall"

	"monoplane.dev/nodeagent/diskuse"
	"monoplane.dev/nodeagent/images/unpack"
	"monoplane.dev/nodeagent/volumes/ownership"
)

// Argv0 is the program name under which the program does a task.
const Argv0 = "monoplane-subids"

// init branches off before the program's own main, as a shim does.
func init() {
	if len(os.Args) > 0 && os.Args[0] == Argv0 {
		os.Exit(serve())
	}
}

// serve does the one task that it reads. Until that comes, its ids are not there.
func serve() int {
	in := bufio.NewReaderSize(os.Stdin, 256<<10)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return 1 // Who has started this has given up.
	}
	var what task
	if err := json.Unmarshal(line, &what); err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		return 1
	}
	var a answer
	if err := what.do(context.Background(), in, &a); err != nil {
		a.Error = err.Error()
		a.Kind = 1 + slices.IndexFunc(kinds(), func(kind error) bool { return errors.Is(err, kind) })
		if no, is := errors.AsType[syscall.Errno](err); is {
			a.Errno = uint(no)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		return 1
	}
	return 0
}

func (t task) do(ctx context.Context, in *bufio.Reader, a *answer) (err error) {
	switch {
	case t.Tar != nil:
		a.Stats, err = unpack.Tar(ctx, t.Tar.Dir, in, t.Tar.Options)
	case t.Merge != nil:
		err = unpack.Merge(ctx, t.Merge.To, t.Merge.Layers, t.Merge.Options)
	case t.Top != nil:
		err = unpack.Top(ctx, t.Top.To, t.Top.Layers, t.Top.Options)
	case t.Upper != nil:
		err = unpack.Upper(t.Upper.Dir, t.Upper.Layer, unpack.Shift{})
	case t.Give != nil:
		err = ownership.Give(t.Give.Dir, t.Give.Group, t.Give.ForReading, t.Give.Policy)
	case t.Measure != "":
		a.Size, err = diskuse.Of(ctx, t.Measure)
	default:
		err = errors.New("an unknown task")
	}
	return err
}
