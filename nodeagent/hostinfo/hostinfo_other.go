//go:build !linux

package hostinfo

import (
	"net"
	"os"
	"time"
)

func machineID() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

func systemUUID() string              { return machineID() }
func bootID() string                  { return "" }
func kernelVersion() string           { return "" }
func osImage() string                 { return "" }
func memoryTotal() int64              { return 0 }
func memoryAvailable() int64          { return 0 }
func disk(string) (total, free int64) { return 0, 0 }
func cpuTime() time.Duration          { return 0 }
func roomOf(string) Room              { return Room{} }
func booted() time.Time               { return time.Time{} }
func interfaces() []Interface         { return nil }
func pids() (limit, used int64)       { return 0, 0 }

func memoryInUse() MemoryUse {
	return MemoryUse{Used: -1, Anonymous: -1, Faults: -1, MajorFaults: -1}
}

func allAddresses() []address {
	all, _ := net.InterfaceAddrs() // none, if they cannot be read
	var out []address
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			out = append(out, address{ip: n.IP})
		}
	}
	return out
}
