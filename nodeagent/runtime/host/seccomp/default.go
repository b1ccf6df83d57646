package seccomp

import "slices"

// denied are the calls that the default profile refuses, by the capability that lets a container have them after
// all; "" stands for none. They administer the machine, reach into other processes' kernel objects, or have been the
// way into the kernel so often that container runtimes agree on refusing them.
func denied() map[string][]string {
	return map[string][]string{
		"": {"add_key", "keyctl", "request_key", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
			"kexec_load", "kexec_file_load", "create_module", "get_kernel_syms", "query_module", "nfsservctl", "uselib",
			"ustat", "sysfs", "_sysctl", "vm86", "vm86old", "swapon", "swapoff", "pivot_root", "lookup_dcookie"},
		"SYS_ADMIN": {"mount", "umount2", "move_mount", "open_tree", "open_tree_attr", "fsopen", "fsconfig", "fsmount",
			"fspick", "mount_setattr", "setns", "unshare", "quotactl", "quotactl_fd", "fanotify_init", "sethostname",
			"setdomainname"},
		"BPF":             {"bpf"},
		"PERFMON":         {"perf_event_open"},
		"DAC_READ_SEARCH": {"open_by_handle_at"},
		"SYS_BOOT":        {"reboot"},
		"SYS_CHROOT":      {"chroot"},
		"SYS_MODULE":      {"init_module", "finit_module", "delete_module"},
		"SYS_NICE":        {"mbind", "migrate_pages", "move_pages", "set_mempolicy", "set_mempolicy_home_node"},
		"SYS_PACCT":       {"acct"},
		"SYS_RAWIO":       {"iopl", "ioperm"},
		"SYS_TIME":        {"settimeofday", "clock_settime", "clock_adjtime", "adjtimex"},
		"SYS_TTY_CONFIG":  {"vhangup"},
		"SYSLOG":          {"syslog"},
	}
}

// newNamespaces are the flags of clone that make one.
const newNamespaces = 0x7e020000

// Default compiles the default profile of a container that was given the named capabilities beyond what is usual;
// "ALL" stands for all. It allows what it does not name: the image is the machine's own filesystem, with programs
// that no list of allowed calls knows.
func Default(capabilities []string) (string, error) {
	numbers, err := readTable()
	if err != nil {
		return "", err
	}
	has := func(capability string) bool {
		return slices.Contains(capabilities, "ALL") || slices.Contains(capabilities, capability) ||
			(capability == "BPF" || capability == "PERFMON") && slices.Contains(capabilities, "SYS_ADMIN")
	}
	var refused []uint32
	for capability, names := range denied() {
		if capability != "" && has(capability) {
			continue
		}
		for _, name := range names {
			if n, ok := numbers[name]; ok {
				refused = append(refused, n)
			}
		}
	}
	slices.Sort(refused)
	p := append(start(), anyOf(refused, actErrno|ePERM)...)
	if !has("SYS_ADMIN") {
		for bit := uint64(1); bit <= newNamespaces; bit <<= 1 {
			if bit&newNamespaces == 0 {
				continue
			}
			code, err := when(numbers["clone"], []condition{{Value: bit, ValueTwo: bit, Op: "SCMP_CMP_MASKED_EQ"}},
				actErrno|ePERM)
			if err != nil {
				return "", err
			}
			p = append(p, code...)
		}
		// Its flags lie in memory, which a filter cannot see; C libraries take clone when it is not there.
		p = append(p, anyOf([]uint32{numbers["clone3"]}, actErrno|eNOSYS)...)
	}
	return append(p, instruction{code: bpfReturn, k: actAllow}).bytes()
}
