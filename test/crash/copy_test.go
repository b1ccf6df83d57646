package crash

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// copied is a copy of the data directory, and its server while it runs. A round without one has nil.
type copied struct {
	run    *run
	dir    string
	server *server
}

// copyData copies the data directory, as an operator would who believes in copies. The original is dead meanwhile, so
// that the copy is whole; its pods run on.
func (r *run) copyData() (*copied, error) {
	c := &copied{run: r, dir: filepath.Join(r.dir, fmt.Sprintf("copy-%d", r.rounds))}
	if out, err := exec.Command("cp", "-a", r.backing, c.dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cp: %w: %s", err, out)
	}
	return c, nil
}

// start starts a server on the copy, beside the original. It may refuse to.
//
// spec: SAFE-5
func (c *copied) start() {
	if c == nil {
		return
	}
	c.server = c.run.launchOn(c.dir, 0)
	c.run.counts[copies]++
}

// end kills the copy's server, and its shims if it has started any. What they ran dies with the shims, because a new
// server would see to that; there is none, so that it is killed here.
func (c *copied) end(ctx context.Context) error {
	if c == nil {
		return nil
	}
	if c.server != nil {
		c.server.kill()
	}
	err := eventually(ctx, func() error {
		left, err := shims(c.dir)
		for _, s := range left {
			children, e := childrenOf(s.PID)
			if e != nil {
				return e
			}
			for _, p := range append(children, s.process) {
				_ = p.signal(unix.SIGKILL) // it may have ended
			}
		}
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("shims %v of a copy are left", left)
		}
		return err
	})
	if err != nil {
		return err
	}
	return os.RemoveAll(c.dir)
}
