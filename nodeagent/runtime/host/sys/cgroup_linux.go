package sys

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

// Cgroup is one control group as the set of its directories: at most one in a cgroup2 hierarchy, which can kill all
// that is in it at once, and one for each cgroup v1 controller that limits something.
type Cgroup struct {
	Unified string
	V1      []string
}

// Kill ends every process in the group's cgroup2 directory and below. Doing it to an absent group is no error.
func (g Cgroup) Kill() error {
	if g.Unified == "" {
		return nil
	}
	err := os.WriteFile(g.Unified+"/cgroup.kill", []byte("1"), 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}

// Populated tells whether the cgroup2 directory, or one below, holds a live process.
func (g Cgroup) Populated() (bool, error) {
	if g.Unified == "" {
		return false, nil
	}
	b, err := os.ReadFile(g.Unified + "/cgroup.events")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return Index(string(b), "populated 1") >= 0, nil
}

// OOMKills counts the processes of the group that the kernel killed for memory.
func (g Cgroup) OOMKills() int {
	files := []string{}
	if g.Unified != "" {
		files = append(files, g.Unified+"/memory.events")
	}
	for _, d := range g.V1 {
		files = append(files, d+"/memory.oom_control")
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		f := Fields(string(b))
		for i := 0; i+1 < len(f); i += 2 {
			if f[i] == "oom_kill" {
				if n, _ := strconv.Atoi(f[i+1]); n > 0 {
					return n
				}
			}
		}
	}
	return 0
}

// Remove removes the group's directories, children first. It fails while a process is inside.
func (g Cgroup) Remove() error {
	var all []error
	for _, d := range append([]string{g.Unified}, g.V1...) {
		if d != "" {
			all = append(all, removeTree(d))
		}
	}
	return errors.Join(all...)
}

func removeTree(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(-1)
	d.Close()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(dir + "/" + e.Name()); err != nil {
				return err
			}
		}
	}
	if err := syscall.Rmdir(dir); err != nil && err != syscall.ENOENT {
		return &os.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}
