package sys

import (
	"os"
	"strconv"
)

const freezer = "freezer"

// unfreeze moves a process from a frozen group of the cgroup v1 freezer, in which even SIGKILL waits, to the top of
// that hierarchy, where it runs. The group stays as it is: others may be in it. In cgroup2 a frozen process can be
// killed.
func unfreeze(pid int) error {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return err
	}
	for _, line := range Split(string(b), '\n') {
		// Hierarchy:controllers:group
		f := Split(line, ':')
		if len(f) < 3 || !contains(Split(f[1], ','), freezer) || f[2] == "/" {
			continue
		}
		top, err := freezerTop()
		if err != nil || top == "" {
			return err
		}
		return os.WriteFile(top+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0)
	}
	return nil
}

// freezerTop is where the freezer's hierarchy is mounted; empty if it is not.
func freezerTop() (string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for _, line := range Split(string(b), '\n') {
		// ID parent device root point options tags... - type source options
		f := Fields(line)
		n := len(f)
		if n >= 10 && f[n-4] == "-" && f[n-3] == "cgroup" && contains(Split(f[n-1], ','), freezer) {
			return f[4], nil
		}
	}
	return "", nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// Thaw lets the processes of the group's cgroup2 directory go on if it is frozen.
func (g Cgroup) Thaw() error {
	if g.Unified == "" {
		return nil
	}
	name := g.Unified + "/cgroup.freeze"
	b, err := os.ReadFile(name)
	if err != nil || len(b) == 0 || b[0] != '1' {
		return err
	}
	return os.WriteFile(name, []byte("0"), 0)
}
