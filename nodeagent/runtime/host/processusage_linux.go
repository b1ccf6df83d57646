package host

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// tick is the unit of time in /proc/PID/stat (USER_HZ), which is the same on all machines.
const tick = time.Second / 100

// ofProcesses is what the processes of a container use, for where no cgroup counts it: without root, and nobody who
// has handed a group on. The zero value is ready.
type ofProcesses struct {
	mu  sync.Mutex
	cpu int64
}

// read adds up what descends from the container's first process: nanoseconds of processor time since the container
// started, with the descendants that were waited for, and bytes of memory that belong to one process each. Both are
// negative when there is no such process. Time that was told is never taken back, though a process nobody waits for
// takes its own along.
func (o *ofProcesses) read(first int) (cpu, memory int64) {
	// What cannot be read has ended meanwhile, or is missing in the sum.
	all, _ := sys.Descendants([]int{first})
	cpu, memory = -1, -1
	for _, p := range all {
		ticks, bytes, ok := usageOf(p.PID)
		if ok {
			cpu, memory = max(cpu, 0)+ticks*int64(tick), max(memory, 0)+bytes
		}
	}
	if cpu < 0 {
		return cpu, memory
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cpu = max(o.cpu, cpu)
	return o.cpu, memory
}

// usageOf reads what one process has used, with those of its children that it has waited for, and what memory only it
// has: proc_pid_stat(5), proc_pid_statm(5).
func usageOf(pid int) (ticks, bytes int64, ok bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return 0, 0, false
	}
	statm, err := os.ReadFile(dir + "/statm")
	if err != nil {
		return 0, 0, false
	}
	// The program's name, in parentheses, may hold anything.
	times := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	pages := strings.Fields(string(statm))
	const utime, cstime, resident, shared = 11, 14, 1, 2
	if len(times) <= cstime || len(pages) <= shared {
		return 0, 0, false
	}
	for _, f := range times[utime : cstime+1] {
		n, _ := strconv.ParseInt(f, 10, 64) // The kernel writes numbers.
		ticks += n
	}
	all, _ := strconv.ParseInt(pages[resident], 10, 64)
	others, _ := strconv.ParseInt(pages[shared], 10, 64)
	return ticks, (all - others) * int64(os.Getpagesize()), true
}
