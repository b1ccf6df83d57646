package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// other is a sandbox of another directory, or of the directory that this one was copied from.
type other struct {
	uid, sandbox, dir string
	shim              sys.Proc
	marker            sys.Marker
	group             sys.Cgroup
}

// left names what is left of it; "" when nothing is.
func (o other) left() (string, error) {
	if sys.IsAlive(o.shim) {
		now, err := sys.Stat(o.shim.PID)
		if err == nil {
			return now.String(), nil
		}
	}
	populated, err := o.group.Populated()
	if err != nil {
		return "", err
	}
	list, err := sys.Marked(o.marker, sandboxVariable+"="+o.sandbox)
	if err == nil && populated && len(list) == 0 {
		return "cgroup " + o.group.Unified + " is not empty", nil
	}
	return describe(list), err
}

// describe names processes; "" when there are none.
func describe(list []sys.Proc) string {
	const most = 5
	var out []string
	for i, p := range list {
		if i == most {
			out = append(out, "and "+strconv.Itoa(len(list)-most)+" more")
			break
		}
		out = append(out, p.String())
	}
	return strings.Join(out, ", ")
}

func (r *Runtime) noteOther(o other) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, had := range r.others[o.uid] {
		if had.sandbox == o.sandbox {
			if o.shim.PID != 0 {
				r.others[o.uid][i] = o
			}
			return
		}
	}
	r.others[o.uid] = append(r.others[o.uid], o)
}

// survey looks for this user's shims of other directories, by the records in their working directories: those of
// versions that claim nothing, and of other mount namespaces.
func (r *Runtime) survey() error {
	all, err := shims()
	if err != nil {
		return err
	}
	for _, p := range all {
		cwd := "/proc/" + strconv.Itoa(p.PID) + "/cwd"
		dir, err := os.Readlink(cwd)
		if err != nil {
			continue // Gone.
		}
		at, err := os.Stat(cwd)
		if err != nil {
			continue
		}
		if mine, err := os.Stat(filepath.Join(r.dir, podsDir, filepath.Base(dir))); err == nil && os.SameFile(at, mine) {
			continue
		}
		// Another directory's shim, or a program that calls itself one.
		rec, err := loadSandbox(filepath.Join(cwd, sandboxName))
		if err != nil || p.Name != shim.Argv0 {
			continue
		}
		r.noteOther(other{
			uid: rec.config.GetMetadata().GetUid(), sandbox: filepath.Base(dir), dir: dir, shim: p, marker: rec.marker,
			group: rec.group,
		})
	}
	return nil
}

// firstSurvey is the survey of New, beside everything else that a start does. A sandbox waits for it.
func (r *Runtime) firstSurvey() {
	defer close(r.surveyed)
	var err error
	for range 5 {
		if err = r.survey(); err == nil {
			return
		}
		if pause := r.bounds.retry / 4; !r.nap(&pause) {
			return
		}
	}
	r.log.Error("the processes of this machine cannot be listed; a pod that another directory runs is seen by its "+
		"claim only", "error", err)
}

// runsElsewhere refuses a pod of which something is known to run elsewhere. Who is found gone is forgotten.
func (r *Runtime) runsElsewhere(uid string) error {
	r.mu.RLock()
	list := append([]other(nil), r.others[uid]...)
	r.mu.RUnlock()
	for _, o := range list {
		left, err := o.left()
		if err != nil {
			return unavailable("the processes of this machine cannot be listed: %v", err)
		}
		if left != "" {
			return wrongState("pod uid %s runs on this machine already, in sandbox %s of %s: %s. "+
				"Stop it there; if its directory is gone, end these processes", uid, o.sandbox, o.dir, left)
		}
	}
	if len(list) > 0 {
		r.mu.Lock()
		delete(r.others, uid)
		r.mu.Unlock()
	}
	return nil
}
