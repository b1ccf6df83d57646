// Package hostinfo says what the machine is that a node agent runs on: its capacity, its identity, its
// addresses, and whether it runs out of something. It asks nobody but the kernel.
//
// What cannot be read is left out or zero; nothing here fails. On systems other than Linux only what the Go
// runtime knows is reported. It does not measure pods.
package hostinfo

import (
	"encoding/hex"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
)

// Facts describe a machine.
type Facts struct {
	// Hostname is the machine's own name.
	Hostname string
	// IPs are its addresses, one of each family, as Addresses returns them.
	IPs []string
	// Capacity holds cpu, memory, ephemeral-storage and pods, and the huge pages of each size that the kernel has, which
	// are part of the memory.
	Capacity map[string]*metav1.Quantity
	// Info is what the node's status says about the system. The agent adds the versions.
	Info *corev1.NodeSystemInfo
}

// DefaultPods is how many pods a node takes.
const DefaultPods = 110

// Read returns the facts of this machine; dir is a directory on the file system that pods use.
func Read(dir string) Facts {
	f := Facts{
		IPs: addresses(),
		Info: &corev1.NodeSystemInfo{
			OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
			MachineID: machineID(), SystemUUID: systemUUID(), BootID: bootID(),
			KernelVersion: kernelVersion(), OsImage: osImage(),
		},
	}
	f.Hostname, _ = os.Hostname() // without one, pods on the node's network get their own names
	f.Capacity = map[string]*metav1.Quantity{
		"cpu":  value.NewQuantity(*resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI)),
		"pods": value.NewQuantity(*resource.NewQuantity(DefaultPods, resource.DecimalSI)),
	}
	if total := memoryTotal(); total > 0 {
		f.Capacity["memory"] = value.NewQuantity(*resource.NewQuantity(total, resource.BinarySI))
	}
	for size, bytes := range hugePages(hugePagesDir) {
		name := "hugepages-" + resource.NewQuantity(size, resource.BinarySI).String()
		f.Capacity[name] = value.NewQuantity(*resource.NewQuantity(bytes, resource.BinarySI))
	}
	if total, _ := disk(dir); total > 0 {
		f.Capacity["ephemeral-storage"] = value.NewQuantity(*resource.NewQuantity(total, resource.BinarySI))
	}
	return f
}

// Simulated returns the facts of a machine that does not exist, for simulated nodes: number n of its kind.
func Simulated(name string, n int) Facts {
	ip := net.IPv4(10, byte(192+n>>16), byte(n>>8), byte(n)).String()
	quantity := func(s string) *metav1.Quantity { return &metav1.Quantity{String_: s} }
	id := "simulated-" + strconv.Itoa(n)
	return Facts{
		Hostname: name, IPs: []string{ip},
		Capacity: map[string]*metav1.Quantity{
			"cpu": quantity("32"), "memory": quantity("256Gi"), "ephemeral-storage": quantity("1Ti"),
			"pods": quantity(strconv.Itoa(DefaultPods)),
		},
		Info: &corev1.NodeSystemInfo{
			MachineID: id, SystemUUID: id, BootID: id, KernelVersion: "simulated", OsImage: "simulated",
			OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
		},
	}
}

// ownLink is the name of a link of Monoplane's own, whichever cluster of the machine it belongs to: it leads to pods,
// and its address is of their range.
func ownLink(name string) bool {
	rest, ok := strings.CutPrefix(name, "mp")
	_, err := hex.DecodeString(rest)
	return ok && err == nil && len(rest) == 10
}

// address is one that the machine has.
type address struct {
	link string
	ip   net.IP
	main bool // on the link by which the machine goes out, with addresses of this family
}

// addresses chooses from those of the machine, in the kernel's order, as Addresses describes.
func addresses() []string {
	var out []string
	all := allAddresses()
	for _, is4 := range []bool{true, false} {
		if ip := choose(all, is4); ip != nil {
			out = append(out, ip.String())
		}
	}
	if len(out) == 0 {
		return []string{"127.0.0.1"}
	}
	return out
}

func choose(all []address, is4 bool) net.IP {
	var first net.IP
	for _, a := range all {
		switch {
		case (a.ip.To4() != nil) != is4 || !a.ip.IsGlobalUnicast() || ownLink(a.link):
		case a.main:
			return a.ip
		case first == nil:
			first = a.ip
		}
	}
	return first
}
