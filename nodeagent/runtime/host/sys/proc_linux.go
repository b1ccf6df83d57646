package sys

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// Proc is what /proc/PID/stat says about one process.
type Proc struct {
	PID, PPID, Session int
	// Name is the name of its program, as ps shows it: the process may have set it to anything.
	Name string
	// State is the kernel's letter: R runs, S sleeps, D waits for a device and cannot be killed meanwhile, T is
	// stopped by a signal, t by a debugger.
	State byte
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
	begin := Index(line, "(")
	if len(f) < 20 || begin < 0 || begin > end {
		return Proc{}, errStat
	}
	p := Proc{PID: pid, Name: line[begin+1 : end], State: f[0][0], Zombie: f[0] == "Z" || f[0] == "X"}
	p.PPID, _ = strconv.Atoi(f[1])
	p.Session, _ = strconv.Atoi(f[3])
	p.Start, _ = strconv.ParseUint(f[19], 10, 64)
	return p, nil
}

// String names the process to a person.
func (p Proc) String() string {
	return "process " + strconv.Itoa(p.PID) + " (" + p.Name + ", state " + string(rune(p.State)) + ")"
}

// IsAlive tells whether exactly the process that p names runs.
func IsAlive(p Proc) bool {
	if p.PID <= 0 {
		return false
	}
	now, err := Stat(p.PID)
	return err == nil && now.Start == p.Start && !now.Zombie
}

// Gone tells whether an error of this package means that the process is not there (any more), as opposed to one that
// says nothing about it, such as a table of descriptors that is full.
func Gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// Exhausted tells whether an error means that this process or the machine has no descriptor or memory left at the
// moment: it says nothing about what was asked for, which is to be tried again.
func Exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// BootTime is the time since the machine has started, in nanoseconds, suspension included: a clock that nobody can
// set (CLOCK_BOOTTIME).
func BootTime() int64 {
	const clockBoottime = 7
	var ts syscall.Timespec
	_, _, e := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	if e != 0 {
		return 0 // Linux has it since 2.6.39.
	}
	return ts.Nano()
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
		if errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return nil, err
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
		p, err := Stat(n)
		if err != nil && !Gone(err) {
			return nil, err
		}
		if err == nil && p.PPID == pid {
			out = append(out, n)
		}
	}
	return out, nil
}

// Descendants lists everything that descends from the roots, and the roots, except zombies. With an error the list is
// what was found all the same: it may be killed, but its end proves nothing.
func Descendants(roots []int) ([]Proc, error) {
	var out []Proc
	var failed error
	seen := map[int]bool{}
	for len(roots) > 0 {
		pid := roots[len(roots)-1]
		roots = roots[:len(roots)-1]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		p, err := Stat(pid)
		if err == nil && !p.Zombie {
			out = append(out, p)
		}
		if err != nil && !Gone(err) {
			failed = err
		}
		// A zombie leader of a process whose other threads still run has children of its own.
		kids, err := Children(pid)
		if err != nil && !Gone(err) {
			failed = err
		}
		roots = append(roots, kids...)
	}
	return out, failed
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
