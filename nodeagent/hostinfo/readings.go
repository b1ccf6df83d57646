package hostinfo

import "time"

// Room is what a file system has, in bytes and inodes.
type Room struct {
	Size, Available, Inodes, InodesFree int64
	// Device tells file systems apart.
	Device uint64
}

// RoomOf returns what the file system has that dir is on; zero when it cannot be read.
func RoomOf(dir string) Room { return roomOf(dir) }

// Memory returns the machine's memory and what is available of it, in bytes; zero when it cannot be read.
func Memory() (total, available int64) { return memoryTotal(), memoryAvailable() }

// CPUTime returns the time that all cpus together have worked since the machine started; zero when it cannot be read.
func CPUTime() time.Duration { return cpuTime() }

// PIDs returns how many tasks the kernel allows and how many there are; zero when it cannot be read.
func PIDs() (limit, used int64) { return pids() }
