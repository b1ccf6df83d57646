package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// A claim is a file, named after a pod's uid, that whoever runs the pod on this machine holds locked. The runtime
// takes it before it makes the sandbox, and the shim inherits it, so that the lock lasts as long as the shim. What the
// file says lasts longer: until the sandbox is gone. A claim that is not locked and of this boot is that of a shim
// that was killed, and whoever wants the pod looks first whether anything of it is left, by the marker that the file
// names.
//
// Without a directory for claims a runtime looks at the processes of the machine before each sandbox. Claims are seen
// by runtimes of one user in one mount namespace; the survey sees other mount namespaces too, as far as /proc shows
// them.

// defaultClaimDir is the same for every program of a user. It is on a file system that a reboot clears, or at least of
// a name that no other user can take from root.
func defaultClaimDir() string {
	if os.Geteuid() == 0 {
		return "/run/monoplane-claims"
	}
	return "/tmp/monoplane-claims-" + strconv.Itoa(os.Geteuid())
}

// openClaimDir makes the directory, and refuses one that somebody else could write to.
func openClaimDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if s := st.Sys().(*syscall.Stat_t); !st.IsDir() || int(s.Uid) != os.Geteuid() || st.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s must be a directory of user %d with mode 0700", dir, os.Geteuid())
	}
	return nil
}

// claimRecord is what a claim's file says.
type claimRecord struct {
	bootID  string
	sandbox string
	dir     string
	shim    sys.Proc
	marker  sys.Marker
	unified string
	v1      []string
}

func (c *claimRecord) encode() []byte {
	var e shimwire.Encoder
	e.String(1, c.bootID)
	e.String(2, c.sandbox)
	e.String(3, c.dir)
	e.Int(4, int64(c.shim.PID))
	e.Int(5, int64(c.shim.Start))
	e.Int(6, int64(c.marker))
	e.String(7, c.unified)
	e.Strings(8, c.v1)
	return e.Bytes()
}

// loadClaim returns what the file says; nothing, when nothing whole is in it yet.
func loadClaim(name string) (*claimRecord, error) {
	c := &claimRecord{}
	b, err := shimwire.Last(name)
	if err != nil {
		return nil, err
	}
	return c, shimwire.Decode(b, func(f shimwire.Field) {
		switch f.Tag {
		case 1:
			c.bootID = f.Text()
		case 2:
			c.sandbox = f.Text()
		case 3:
			c.dir = f.Text()
		case 4:
			c.shim.PID = int(f.Number())
		case 5:
			c.shim.Start = uint64(f.Number())
		case 6:
			c.marker = sys.Marker(f.Number())
		case 7:
			c.unified = f.Text()
		case 8:
			c.v1 = append(c.v1, f.Text())
		}
	})
}

func (r *Runtime) claimName(sb *sandbox) string {
	return filepath.Join(r.claims, claimOfUID(sb.rec.config.GetMetadata().GetUid()))
}

// claimOfUID names the claim of a pod.
func claimOfUID(uid string) string {
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:16])
}

func (r *Runtime) claimOf(sb *sandbox) *claimRecord {
	return &claimRecord{bootID: r.bootID, sandbox: sb.id, dir: sb.dir, shim: sb.shim, marker: sb.rec.marker,
		unified: sb.rec.group.Unified, v1: sb.rec.group.V1}
}

// claim takes the pod's uid for a sandbox, or says who has it. The file is nil when there are no claims.
//
// spec: SAFE-5
func (r *Runtime) claim(ctx context.Context, sb *sandbox) (*os.File, error) {
	select {
	case <-r.surveyed:
	case <-ctx.Done():
		return nil, callError(ctx.Err())
	}
	if r.claims == "" {
		if err := r.survey(); err != nil {
			return nil, unavailable("the processes of this machine cannot be listed: %v", err)
		}
	}
	if err := r.runsElsewhere(sb.rec.config.GetMetadata().GetUid()); err != nil || r.claims == "" {
		return nil, err
	}
	name := r.claimName(sb)
	var pause sys.Pause
	for tries := 0; ; tries++ {
		f, held, err := lockClaim(name)
		if err != nil {
			return nil, unavailable("the pod cannot be claimed: %v", err)
		}
		if f == nil && !held {
			continue // It was removed in between.
		}
		rec, err := loadClaim(name)
		if err == nil && !held {
			err = r.takeOver(rec, sb, f)
		} else if err == nil && (tries > 10 || sys.IsAlive(rec.shim)) {
			err = r.conflict(sb, rec.sandbox, rec.dir, rec.shim.String())
		}
		if err != nil {
			if f != nil {
				err = errors.Join(err, f.Close())
			}
			return nil, err
		}
		if !held {
			return f, nil
		}
		pause.Wait() // Its shim is dead, or not yet named: that ends in a moment.
	}
}

// lockClaim opens and locks a claim's file. It returns none when another one has it, or has just removed it.
func lockClaim(name string) (f *os.File, held bool, err error) {
	f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, false, err
	}
	held, err = sys.Lock(f)
	if err == nil && !held {
		var mine, there os.FileInfo
		if mine, err = f.Stat(); err == nil {
			if there, err = os.Stat(name); err == nil && os.SameFile(mine, there) {
				return f, false, nil
			}
		}
		if os.IsNotExist(err) {
			err = nil
		}
	}
	return nil, held, errors.Join(err, f.Close())
}

// takeOver makes a claim that nobody holds the sandbox's own, if nothing is left of the sandbox that had it.
func (r *Runtime) takeOver(old *claimRecord, sb *sandbox, f *os.File) error {
	if old.bootID == r.bootID && old.marker != 0 {
		left, err := other{sandbox: old.sandbox, marker: old.marker, shim: old.shim,
			group: sys.Cgroup{Unified: old.unified}}.left()
		if err != nil {
			return unavailable("the processes of this machine cannot be listed: %v", err)
		}
		if left != "" {
			return r.conflict(sb, old.sandbox, old.dir, left)
		}
	}
	if err := f.Truncate(0); err != nil {
		return unavailable("the pod cannot be claimed: %v", err)
	}
	if err := shimwire.Append(f.Name(), r.claimOf(sb).encode(), false); err != nil {
		return unavailable("the pod cannot be claimed: %v", err)
	}
	return nil
}

// conflict is the error of a sandbox whose pod runs already.
func (r *Runtime) conflict(sb *sandbox, sandbox, dir, what string) error {
	m := sb.rec.config.GetMetadata()
	if filepath.Dir(dir) == filepath.Join(r.dir, podsDir) {
		return wrongState("sandbox %s of pod %s/%s (uid %s) has not ended yet: %s", sandbox, m.GetNamespace(), m.GetName(),
			m.GetUid(), what)
	}
	return wrongState("pod %s/%s (uid %s) runs on this machine already, in sandbox %s of %s: %s. "+
		"Stop it there; if its directory is gone, end these processes", m.GetNamespace(), m.GetName(), m.GetUid(), sandbox,
		dir, what)
}

// unclaim removes the claim of a sandbox that is gone, unless it is another's by now.
func (r *Runtime) unclaim(sb *sandbox) {
	if r.claims == "" || sb.rec.damaged {
		return
	}
	name := r.claimName(sb)
	rec, err := loadClaim(name)
	if err != nil || rec.sandbox != sb.id {
		return
	}
	f, held, err := lockClaim(name)
	if f == nil || held || err != nil {
		return // Whoever has it now decides.
	}
	defer f.Close()
	if rec, err := loadClaim(name); err == nil && (rec.sandbox == sb.id || rec.sandbox == "") {
		if err := os.Remove(name); err != nil {
			r.log.Warn("a claim cannot be removed", "file", name, "error", err)
		}
	}
}
