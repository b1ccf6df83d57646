package sys

import (
	"errors"
	"os"
	"strconv"
)

// Proc is what /proc/PID/stat says about one process.
type Proc struct {
	PID, PPID, Session int
	// Zombie is true for a process that has ended and waits to be reaped: it runs no code any more.
	Zombie bool
	// Start is when it started, in clock ticks since boot. PID and Start together name a process of this boot.
	Start uint64
}

var errStat = errors.New("unexpected format of /proc/PID/stat")

// Stat reads what is known of pid. The error is os.ErrNotExist when there is no such process.
func Stat(pid int) (Proc, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Proc{}, err
	}
	// The command name is in parentheses and may hold anything, parentheses and spaces included.
	line := string(b)
	end := LastByte(line, ')')
	if end < 0 {
		return Proc{}, errStat
	}
	f := Fields(line[end+1:])
	if len(f) < 20 {
		return Proc{}, errStat
	}
	p := Proc{PID: pid, Zombie: f[0] == "Z" || f[0] == "X"}
	p.PPID, _ = strconv.Atoi(f[1])
	p.Session, _ = strconv.Atoi(f[3])
	p.Start, _ = strconv.ParseUint(f[19], 10, 64)
	return p, nil
}

// Children lists the direct children of pid, zombies included. While none of them is reaped and pid forks nothing the
// list is exact; otherwise it may miss some, so that only a list made in quiet proves absence.
func Children(pid int) ([]int, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	tasks, err := names(dir)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, t := range tasks {
		b, err := os.ReadFile(dir + "/" + t + "/children")
		if errors.Is(err, os.ErrNotExist) {
			if _, gone := os.Stat(dir + "/" + t); gone != nil {
				continue // The thread has ended; its children moved to another one.
			}
			return childrenByScan(pid) // A kernel without CONFIG_PROC_CHILDREN.
		}
		if err != nil {
			continue
		}
		for _, f := range Fields(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				out = append(out, n)
			}
		}
	}
	return out, nil
}

func childrenByScan(pid int) ([]int, error) {
	all, err := Processes()
	if err != nil {
		return nil, err
	}
	var out []int
	for _, n := range all {
		if p, err := Stat(n); err == nil && p.PPID == pid {
			out = append(out, n)
		}
	}
	return out, nil
}

// Descendants lists everything that descends from the roots, and the roots, except zombies.
func Descendants(roots []int) []Proc {
	var out []Proc
	seen := map[int]bool{}
	for len(roots) > 0 {
		pid := roots[len(roots)-1]
		roots = roots[:len(roots)-1]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		if p, err := Stat(pid); err == nil && !p.Zombie {
			out = append(out, p)
		}
		// A zombie leader of a process whose other threads still run has children of its own.
		kids, _ := Children(pid)
		roots = append(roots, kids...)
	}
	return out
}

// Processes lists the pids of all processes that this one can see.
func Processes() ([]int, error) {
	all, err := names("/proc")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, n := range all {
		if pid, err := strconv.Atoi(n); err == nil {
			out = append(out, pid)
		}
	}
	return out, nil
}

func names(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// BootID names the present boot of the machine.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	f := Fields(string(b))
	if len(f) != 1 {
		return "", errors.New("unexpected format of /proc/sys/kernel/random/boot_id")
	}
	return f[0], nil
}
