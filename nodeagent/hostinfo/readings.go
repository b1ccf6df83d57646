package hostinfo

import (
	"maps"
	"slices"
	"time"
)

// Room is what a file system has, in bytes and inodes.
type Room struct {
	Size, Available, Inodes, InodesFree int64
	// Free is Available and what only root may use.
	Free int64
	// Device tells file systems apart.
	Device uint64
}

// Addresses returns one global unicast address of each family, IPv4 first: that of the link by which the machine goes
// out, or else the first of all, but for Monoplane's own links to its pods. A machine without any has the loopback's.
func Addresses() []string { return addresses() }

// RoomOf returns what the file system has that dir is on; zero when it cannot be read.
func RoomOf(dir string) Room { return roomOf(dir) }

// Memory returns the machine's memory and what is available of it, in bytes; zero when it cannot be read.
func Memory() (total, available int64) { return memoryTotal(), memoryAvailable() }

// CPUTime returns the time that all cpus together have worked since the machine started; zero when it cannot be read.
func CPUTime() time.Duration { return cpuTime() }

// PIDs returns how many tasks the kernel allows and how many there are; zero when it cannot be read.
func PIDs() (limit, used int64) { return pids() }

// HugePageSizes returns the sizes of huge pages that the machine's kernel has, in bytes.
func HugePageSizes() []int64 { return slices.Sorted(maps.Keys(hugePages(hugePagesDir))) }

// Booted returns when the machine started; zero when it cannot be read.
func Booted() time.Time { return booted() }

// MemoryUse is what the machine uses of its memory, in bytes; a negative number is not known.
type MemoryUse struct {
	// Used counts all that is not free, and Anonymous what belongs to no file.
	Used, Anonymous int64
	// Faults and MajorFaults are counted since the machine started.
	Faults, MajorFaults int64
	// SwapTotal is 0 where there is none.
	SwapTotal, SwapFree int64
}

// MemoryInUse reads it.
func MemoryInUse() MemoryUse { return memoryInUse() }

// Interface is what has passed through a network interface since it is there, in bytes, and what went wrong.
type Interface struct {
	Name                                 string
	RxBytes, RxErrors, TxBytes, TxErrors int64
}

// Interfaces returns those of the machine but the loopback, first the one by which it reaches others; none when they
// cannot be read.
func Interfaces() []Interface { return interfaces() }
