package host

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// place is what a copy of a directory cannot carry: where it lies. A directory that is renamed keeps it.
type place struct{ device, inode int64 }

func placeOf(name string) (place, error) {
	st, err := os.Stat(name)
	if err != nil {
		return place{}, err
	}
	s := st.Sys().(*syscall.Stat_t)
	return place{int64(s.Dev), int64(s.Ino)}, nil
}

// isCopy tells whether the record of a sandbox was copied with its directory, so that what it names (processes,
// cgroups) is another directory's. Only a record of this boot can name anything that lives. What an older version has
// recorded does not say where; the process that holds the lock of this very directory proves it as well.
func (r *Runtime) isCopy(sb *sandbox) (bool, error) {
	if sb.rec.bootID != r.bootID || sb.rec.place == (place{}) {
		return false, nil
	}
	at, err := placeOf(sb.dir)
	if err != nil || at == sb.rec.place {
		return false, err
	}
	holders, err := lockHolders(sb.dir)
	return len(holders) == 0, err
}

// disown takes a copied sandbox in as one that is over, without anything that could touch what the original runs.
func (r *Runtime) disown(sb *sandbox, list []*container) {
	r.noteOther(other{
		uid: sb.rec.config.GetMetadata().GetUid(), sandbox: sb.id, marker: sb.rec.marker, group: sb.rec.group,
		dir: "the directory that this one is a copy of",
	})
	sb.rec.marker, sb.rec.group, sb.rec.copied = 0, sys.Cgroup{}, true
	r.mu.Lock()
	defer r.mu.Unlock()
	sb.ending = true
	close(sb.gone)
	for _, c := range list {
		c.rec.group = sys.Cgroup{}
		if c.state.Phase == shimwire.Created || c.state.Phase == shimwire.Exited {
			continue
		}
		c.mergeLocked(shimwire.Container{
			ID: c.id, Phase: shimwire.Exited, ExitCode: shimwire.CodeUnknown, Reason: shimwire.ReasonUnknown,
			Message:   "the runtime's directory is a copy: what ran is not this runtime's",
			StartedAt: c.state.StartedAt, FinishedAt: now(),
		})
	}
}

// lockHolders finds the processes that have the lock file of a sandbox's directory open: its shim, and what the shim
// is about to execute. It is for when the shim's own record is missing or proves nothing.
func lockHolders(dir string) ([]sys.Proc, error) {
	lock, err := os.Stat(filepath.Join(dir, lockName))
	if err != nil {
		if os.IsNotExist(err) {
			err = nil // No shim was started here.
		}
		return nil, err
	}
	all, err := shims()
	if err != nil {
		return nil, err
	}
	var out []sys.Proc
	for _, p := range all {
		for fd := shim.ConnFD + 1; fd <= max(shim.ClaimFD, shim.LockFD); fd++ {
			st, err := os.Stat("/proc/" + strconv.Itoa(p.PID) + "/fd/" + strconv.Itoa(fd))
			if err == nil && os.SameFile(st, lock) {
				out = append(out, p)
				break
			}
		}
	}
	return out, nil
}

// shims lists the shims of this user on this machine, and what may be one: a program names itself as it likes. Those
// of other users are left alone, because what a shim is asked for is in files of its own: a FIFO there would be waited
// for.
func shims() ([]sys.Proc, error) {
	all, err := sys.Processes()
	if err != nil {
		return nil, err
	}
	var out []sys.Proc
	for _, pid := range all {
		p, err := sys.Stat(pid)
		if err != nil && !sys.Gone(err) {
			return nil, err
		}
		// A new shim still bears the name of the link that it was executed by.
		if err != nil || p.Zombie || p.Name != shim.Argv0 && p.Name != filepath.Base(self) {
			continue
		}
		st, err := os.Stat("/proc/" + strconv.Itoa(pid))
		if err == nil && int(st.Sys().(*syscall.Stat_t).Uid) == os.Geteuid() {
			out = append(out, p)
		}
	}
	return out, nil
}
