package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"monoplane.dev/nodeagent/runtime/host/sys"
	mounts "monoplane.dev/nodeagent/volumes/mount"
)

// A directory that was removed after everything that used it was killed leaves pods behind that nobody will ever ask
// for. Those whose shim lives end by themselves (shim/lonely_linux.go). What a dead shim has left is ended here, by
// whichever runtime of the user starts next: processes, cgroups, what was mounted for the pod, and the claim.
//
// The claim proves that it is nobody's:
//
//   - Its lock is free. The kernel holds it for a runtime that makes the sandbox and for the shim that runs it,
//     however slow, stopped, or in whichever namespaces those are. So the shim is dead, and what is left of it is what
//     its own runtime would kill, too, and kills at its next start.
//   - The sandbox's directory is not there. Nobody can still want to report how its containers have ended, or start
//     them again.
//
// The claim stays locked meanwhile, so that nobody runs the pod. Neither the pid nor the age of anything is asked.

const (
	// deadFor is how long New's runtime goes on looking, for shims that are about to see that their directory is gone.
	deadFor = 30 * time.Second
	// deadAtOnce bounds how many claims are open at a time: a machine may have hundreds. What cannot be killed keeps
	// its place.
	deadAtOnce = 4
)

// sweepDead looks for claims of dead clusters, and ends what these have left, until none can come to be one.
func (r *Runtime) sweepDead() {
	places := make(chan struct{}, deadAtOnce)
	pause := r.bounds.retry
	for until := time.Now().Add(deadFor); r.sweepOnce(places) && time.Now().Before(until) && r.nap(&pause); {
	}
}

// sweepOnce tells whether a shim of a directory that is gone lives.
func (r *Runtime) sweepOnce(places chan struct{}) (again bool) {
	names, err := os.ReadDir(r.claims)
	if err != nil {
		r.log.Warn("what clusters have left that are gone cannot be looked for", "error", err)
		return false
	}
	for _, d := range names {
		name := filepath.Join(r.claims, d.Name())
		rec, err := loadClaim(name)
		if err != nil || !rec.isDead() {
			continue
		}
		select {
		case places <- struct{}{}:
		case <-r.closing.Done():
			return false
		}
		held := r.takeDead(name, func() { <-places })
		again = again || held
	}
	return again
}

// takeDead takes a claim whose directory is gone, and begins to end what it tells of, unless somebody holds it. Done
// is called when that has ended.
func (r *Runtime) takeDead(name string, done func()) (held bool) {
	f, held, err := lockClaim(name)
	if f == nil || err != nil {
		done()
		return held
	}
	end := func() {
		f.Close()
		done()
	}
	// It may be another one's by now.
	rec, err := loadClaim(name)
	if err != nil || !rec.isDead() || r.closing.Err() != nil {
		end()
		return false
	}
	r.work.Go(func() { // From a goroutine that Close waits for, too.
		defer end()
		r.endDead(name, rec)
	})
	return false
}

// isDead tells whether what a claim says is nobody's, if nobody holds it: the sandbox is gone, or whoever has made the
// claim was killed before that.
func (c *claimRecord) isDead() bool { return c.dir == "" || isAbsent(c.dir) }

// isAbsent tells whether a path is known not to be there; one that cannot be looked at may be.
func isAbsent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// endDead ends what a claim tells of, and removes the claim. Its caller holds the claim's lock.
func (r *Runtime) endDead(claim string, rec *claimRecord) {
	if rec.bootID == r.bootID {
		group := sys.Cgroup{Unified: rec.unified, V1: rec.v1}
		sb := r.newSandbox(rec.sandbox, &sandboxRecord{bootID: rec.bootID, marker: rec.marker, group: group})
		if !r.clear(sb, nil, true) {
			return // Closing; the next start goes on.
		}
		ctx, cancel := context.WithTimeout(r.closing, deadFor)
		defer cancel()
		if err := errors.Join(r.removeGroup(ctx, group), unmountDead(filepath.Base(claim), rec)); err != nil {
			r.log.Warn("not all is gone that a cluster has left whose directory is gone; the next start tries again",
				"sandbox", rec.sandbox, "dir", rec.dir, "error", err)
			return
		}
		r.log.Info("what a cluster has left of a pod is taken away: its directory is gone", "sandbox", rec.sandbox,
			"dir", rec.dir)
	}
	if err := os.Remove(claim); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("a claim cannot be removed", "file", claim, "error", err)
	}
}

// unmountDead takes away what was mounted for a pod whose claim has a name: volumes, in a directory of the node that
// is named after the pod, and a network namespace that CNI was to have one path for, named after the sandbox. Only
// root mounts where others see it. A node that lives has its lock, and looks after what is mounted there itself.
func unmountDead(name string, rec *claimRecord) error {
	if !isRoot() {
		return nil
	}
	all, err := mounts.Below("")
	if err != nil {
		return err
	}
	runtimeDir := filepath.Dir(filepath.Dir(rec.dir))
	nodeDir := filepath.Dir(runtimeDir)
	isDead := isAbsent(filepath.Join(runtimeDir, lockName))
	var failed error
	for _, at := range slices.Backward(all) {
		inside, isBelow := strings.CutPrefix(at, nodeDir+"/")
		isVolume := isDead && isBelow && slices.ContainsFunc(strings.Split(inside, "/"), func(part string) bool {
			return claimOfUID(part) == name
		})
		isNamespace := filepath.Base(at) == "monoplane-"+rec.sandbox
		if !isVolume && !isNamespace {
			continue
		}
		err := mounts.Unmount(at)
		if err == nil && isNamespace {
			err = os.Remove(at)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// Leftovers lists the sandboxes of this user whose directory is gone and of which something may be left.
func Leftovers() ([]string, error) {
	dir := defaultClaimDir()
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	boot, err := sys.BootID()
	var left []string
	for _, d := range names {
		rec, unread := loadClaim(filepath.Join(dir, d.Name()))
		if unread == nil && rec.bootID == boot && rec.isDead() {
			left = append(left, rec.dir)
		}
	}
	return left, err
}
