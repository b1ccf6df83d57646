package sys

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// Marker names a pod (40 bits) and, below it, one of its containers (20 bits; 0 is the shim itself).
type Marker uint64

const (
	markerBit     = Marker(1) << 62
	containerBits = 20
	podBits       = 40
	rlimitRTTIME  = 15 // RLIMIT_RTTIME, the same on every architecture.
)

// NewMarker makes the marker of a pod from any 64 random bits.
func NewMarker(random uint64) Marker {
	return markerBit | Marker(random&(1<<podBits-1))<<containerBits
}

// Pod drops the container's part.
func (m Marker) Pod() Marker { return m &^ (1<<containerBits - 1) }

// Container returns the marker of the n-th container of the pod; numbers repeat after a million.
func (m Marker) Container(n uint64) Marker {
	return m.Pod() | Marker(n%(1<<containerBits-1)+1)
}

// SetMarker marks the calling process, and so every process that it starts from now on.
func SetMarker(m Marker) error {
	var lim syscall.Rlimit
	if err := prlimit(0, rlimitRTTIME, nil, &lim); err != nil {
		return err
	}
	lim.Cur = uint64(m)
	if lim.Max < lim.Cur {
		return os.NewSyscallError("prlimit", syscall.EPERM) // Someone has set a real limit; leave it alone.
	}
	return prlimit(0, rlimitRTTIME, &lim, nil)
}

// StopWriting lets a process write to files no more: it gets an error, if it ignores SIGXFSZ.
func StopWriting(p Proc) error {
	if !IsAlive(p) {
		return nil
	}
	return prlimit(p.PID, syscall.RLIMIT_FSIZE, &syscall.Rlimit{}, nil)
}

func prlimit(pid, which int, set, get *syscall.Rlimit) error {
	_, _, e := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), uintptr(which),
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), 0, 0)
	if e != 0 {
		return os.NewSyscallError("prlimit", e)
	}
	return nil
}

// MarkerOf reads the marker of a process; 0 when it has none or is gone.
func MarkerOf(pid int) (Marker, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		if Gone(err) {
			err = nil
		}
		return 0, err
	}
	s := string(b)
	const label = "Max realtime timeout"
	i := Index(s, label)
	if i < 0 {
		return 0, nil // A zombie has no limits to show.
	}
	f := Fields(s[i+len(label):])
	if len(f) == 0 {
		return 0, nil
	}
	// "unlimited" is no number, and a limit that someone else set is no marker.
	if n, bad := strconv.ParseUint(f[0], 10, 64); bad == nil && Marker(n)&markerBit != 0 && Marker(n)>>63 == 0 {
		return Marker(n), nil
	}
	return 0, nil
}

// Marked lists the processes, zombies excepted, that carry the pod's marker or, if they carry none, have variable
// ("NAME=value") in the environment that they were started with; pod 0 stands for a pod whose marker is not known.
// With an error the list is what was found all the same.
func Marked(pod Marker, variable string) ([]Proc, error) {
	all, err := Processes()
	if err != nil {
		return nil, err
	}
	var out []Proc
	var failed error
	for _, pid := range all {
		m, err := MarkerOf(pid)
		is := m != 0 && m.Pod() == pod.Pod()
		if (m == 0 || pod == 0) && err == nil {
			is, err = hasVariable(pid, variable)
		}
		if err != nil {
			failed = err
		}
		if !is {
			continue
		}
		p, err := Stat(pid)
		if err != nil && !Gone(err) {
			failed = err
		}
		if err == nil && !p.Zombie {
			out = append(out, p)
		}
	}
	return out, failed
}

func hasVariable(pid int, variable string) (bool, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		if Gone(err) || errors.Is(err, os.ErrPermission) { // Another user's is not ours.
			err = nil
		}
		return false, err
	}
	for _, e := range Split(string(b), 0) {
		if e == variable {
			return true, nil
		}
	}
	return false, nil
}
