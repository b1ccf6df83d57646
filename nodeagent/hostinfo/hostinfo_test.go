package hostinfo_test

import (
	"net"
	"runtime"
	"testing"

	"monoplane.dev/codec/value"
	"monoplane.dev/nodeagent/hostinfo"
)

// spec: NODE-1
func TestRead(t *testing.T) {
	f := hostinfo.Read(t.TempDir())
	resources := []string{"cpu", "pods"}
	if runtime.GOOS == "linux" {
		resources = append(resources, "memory", "ephemeral-storage")
		if f.Info.GetKernelVersion() == "" || f.Info.GetBootID() == "" || f.Info.GetOsImage() == "" {
			t.Errorf("info: %v", f.Info)
		}
	}
	for _, r := range resources {
		if q, err := value.Quantity(f.Capacity[r]); err != nil || q.Sign() <= 0 {
			t.Errorf("%s: %v, %v", r, f.Capacity[r], err)
		}
	}
	if len(f.IPs) == 0 || net.ParseIP(f.IPs[0]) == nil {
		t.Errorf("addresses: %v", f.IPs)
	}
	if runtime.GOOS == "linux" {
		total, available := hostinfo.Memory()
		limit, used := hostinfo.PIDs()
		room := hostinfo.RoomOf(t.TempDir())
		if total < available || available <= 0 || limit < used || used <= 0 || room.Size < room.Available ||
			room.Inodes < room.InodesFree || room.Device == 0 {
			t.Errorf("memory %d of %d, pids %d of %d, disk %+v", available, total, used, limit, room)
		}
	}
	if hostinfo.RoomOf("/none") != (hostinfo.Room{}) {
		t.Error("a directory that does not exist has room")
	}
}

func TestSimulated(t *testing.T) {
	seen := map[string]bool{}
	for n := range 5000 {
		ip := hostinfo.Simulated("x", n).IPs[0]
		if seen[ip] || net.ParseIP(ip) == nil {
			t.Fatalf("node %d has address %s", n, ip)
		}
		seen[ip] = true
	}
}
