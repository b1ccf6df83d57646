package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// capabilityNames are in the order of their numbers.
const capabilityNames = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP " +
	"LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO " +
	"SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG " +
	"MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ " +
	"PERFMON BPF CHECKPOINT_RESTORE"

// defaultCapabilities are what a container has that asks for nothing.
const defaultCapabilities = "CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE NET_RAW " +
	"SYS_CHROOT MKNOD AUDIT_WRITE SETFCAP"

// capabilities adds to the default ones and drops from them. ALL stands for all; what is dropped, by name or by ALL,
// wins over ALL that is added, and what is added by name over ALL that is dropped.
func capabilities(in Input) (*specs.LinuxCapabilities, error) {
	known := strings.Fields(capabilityNames)
	sec := in.Container.GetLinux().GetSecurityContext()
	add, addAll, err := readCapabilities(known, sec.GetCapabilities().GetAddCapabilities())
	if err != nil {
		return nil, err
	}
	drop, dropAll, err := readCapabilities(known, sec.GetCapabilities().GetDropCapabilities())
	if err != nil {
		return nil, err
	}
	ambient, _, err := readCapabilities(known, sec.GetCapabilities().GetAddAmbientCapabilities())
	if err != nil {
		return nil, err
	}
	set, _, _ := readCapabilities(known, strings.Fields(defaultCapabilities))
	switch {
	case sec.GetPrivileged():
		set, add, drop = in.Capabilities, 0, 0
	case dropAll:
		set = 0
	case addAll:
		set = in.Capabilities
	}
	if beyond := (add | ambient) &^ in.Capabilities; beyond != 0 {
		return nil, fmt.Errorf("the capabilities %s cannot be added, because monoplane has not got them itself",
			strings.Join(names(known, beyond), ", "))
	}
	set = (set | add | ambient) &^ drop & in.Capabilities
	list := names(known, set)
	out := &specs.LinuxCapabilities{Bounding: list, Effective: list, Permitted: list}
	if ambient &= set; ambient != 0 {
		out.Ambient, out.Inheritable = names(known, ambient), names(known, ambient)
	}
	return out, nil
}

func readCapabilities(known, list []string) (set uint64, all bool, err error) {
	for _, name := range list {
		short := strings.TrimPrefix(strings.ToUpper(name), "CAP_")
		n := slices.Index(known, short)
		switch {
		case short == "ALL":
			all = true
		case n < 0:
			return 0, false, fmt.Errorf("unknown capability %q", name)
		default:
			set |= 1 << n
		}
	}
	return set, all, nil
}

func names(known []string, set uint64) []string {
	out := []string{}
	for n, name := range known {
		if set>>n&1 != 0 {
			out = append(out, "CAP_"+name)
		}
	}
	return out
}
