package host

import (
	"fmt"
	"math/bits"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/seccomp"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// capabilityNames are in the order of their numbers.
const capabilityNames = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP " +
	"LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO " +
	"SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG " +
	"MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ " +
	"PERFMON BPF CHECKPOINT_RESTORE"

// allCapabilities stands for all in a list of names.
const allCapabilities = "ALL"

func isRoot() bool { return os.Geteuid() == 0 }

// security translates what a container asks for. It refuses, by name, what is beyond the privileges that this process
// has.
func security(config *runtimeapi.ContainerConfig, req *shimwire.StartRequest) error {
	sec := config.GetLinux().GetSecurityContext()
	if sec.GetPrivileged() && !isRoot() {
		return badRequest("privileged needs root; monoplane runs as user %d", os.Geteuid())
	}
	if u := sec.GetNamespaceOptions().GetUsernsOptions(); u != nil && u.GetMode() == runtimeapi.NamespaceMode_POD {
		return badRequest("the host runtime cannot give a pod users of its own (hostUsers: false): its image is the " +
			"machine's filesystem, whose users are the machine's")
	}
	req.NoNewPrivs, req.ReadOnlyRoot = sec.GetNoNewPrivs(), sec.GetReadonlyRootfs()
	if !sec.GetPrivileged() {
		req.MaskedPaths, req.ReadOnlyPaths = sec.GetMaskedPaths(), sec.GetReadonlyPaths()
	}
	if err := asUser(sec, req); err != nil {
		return err
	}
	if err := capabilities(sec, req); err != nil {
		return err
	}
	if err := filtered(sec, req); err != nil {
		return err
	}
	return profiled(sec, req)
}

// asUser sets user and groups: those of the container, or of root where it names only some of them. As in other
// runtimes a user of the machine has the primary group that the machine's users file gives it, and its other groups
// unless the policy is Strict.
func asUser(sec *runtimeapi.LinuxContainerSecurityContext, req *shimwire.StartRequest) error {
	if sec.GetRunAsUser() == nil && sec.GetRunAsUsername() == "" && sec.GetRunAsGroup() == nil &&
		len(sec.GetSupplementalGroups()) == 0 {
		return nil
	}
	uid, gid, known, err := userOf(sec)
	if err != nil {
		return err
	}
	if !isRoot() {
		return mayBe(uid, gid, sec.GetSupplementalGroups())
	}
	groups := slices.Clone(sec.GetSupplementalGroups())
	if known != nil && sec.GetSupplementalGroupsPolicy() == runtimeapi.SupplementalGroupsPolicy_Merge {
		more, _ := known.GroupIds() // Those that can be read.
		for _, g := range more {
			if n, err := strconv.ParseInt(g, 10, 64); err == nil && g != known.Gid && !slices.Contains(groups, n) {
				groups = append(groups, n)
			}
		}
	}
	req.SetUser, req.UID, req.GID, req.Groups = true, uid, gid, groups
	return nil
}

// userOf returns the user and the primary group that are asked for, and what the machine knows of the user.
func userOf(sec *runtimeapi.LinuxContainerSecurityContext) (uid, gid int64, known *user.User, err error) {
	uid, gid = int64(os.Geteuid()), int64(os.Getegid())
	switch name := sec.GetRunAsUsername(); {
	case sec.GetRunAsUser() != nil:
		uid = sec.GetRunAsUser().GetValue()
		known, _ = user.LookupId(strconv.FormatInt(uid, 10)) // A user need not have a name.
	case name != "":
		if known, err = user.Lookup(name); err != nil {
			return 0, 0, nil, badRequest("run_as_username %q: the machine has no such user", name)
		}
		uid, _ = strconv.ParseInt(known.Uid, 10, 64)
	}
	switch {
	case sec.GetRunAsGroup() != nil:
		gid = sec.GetRunAsGroup().GetValue()
	case isRoot() && known != nil:
		gid, _ = strconv.ParseInt(known.Gid, 10, 64)
	}
	return uid, gid, known, nil
}

// mayBe refuses users and groups that this process, without root, cannot take on. It keeps all groups that it has.
func mayBe(uid, gid int64, groups []int64) error {
	have, err := os.Getgroups()
	if err != nil {
		return failed("the groups of this process cannot be read: %v", err)
	}
	have = append(have, os.Getegid())
	if uid != int64(os.Geteuid()) {
		return badRequest("run_as_user %d needs root; monoplane runs as user %d", uid, os.Geteuid())
	}
	if gid != int64(os.Getegid()) {
		return badRequest("run_as_group %d needs root; monoplane runs with group %d", gid, os.Getegid())
	}
	for _, g := range groups {
		if !slices.Contains(have, int(g)) {
			return badRequest("the supplemental group %d needs root; monoplane runs as user %d, which is not in it", g,
				os.Geteuid())
		}
	}
	return nil
}

// ownCapabilities are those that this process can hand on.
func ownCapabilities() uint64 {
	if !isRoot() {
		return 0
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return 0
	}
	return uint64(sets[0].Permitted) | uint64(sets[1].Permitted)<<32
}

// readCapabilities returns the numbers of names as bits. all tells whether one of them stands for all.
func readCapabilities(names []string) (set uint64, all bool, err error) {
	known := strings.Fields(capabilityNames)
	for _, name := range names {
		short := plainCapability(name)
		n := slices.Index(known, short)
		switch {
		case short == allCapabilities:
			all = true
		case n < 0:
			return 0, false, badRequest("unknown capability %q", name)
		default:
			set |= 1 << n
		}
	}
	return set, all, nil
}

func plainCapability(name string) string { return strings.TrimPrefix(strings.ToUpper(name), "CAP_") }

// describeCapabilities names the capabilities of a set.
func describeCapabilities(set uint64) string {
	known := strings.Fields(capabilityNames)
	var out []string
	for ; set != 0; set &= set - 1 {
		if n := bits.TrailingZeros64(set); n < len(known) {
			out = append(out, known[n])
		}
	}
	return strings.Join(out, ", ")
}

// capabilities sets what a container has of those of this process: all that it does not drop. To drop ALL and add some
// leaves it those. A user other than root keeps the ambient ones only.
func capabilities(sec *runtimeapi.LinuxContainerSecurityContext, req *shimwire.StartRequest) error {
	asked := sec.GetCapabilities()
	add, addAll, err := readCapabilities(asked.GetAddCapabilities())
	if err != nil {
		return err
	}
	drop, dropAll, err := readCapabilities(asked.GetDropCapabilities())
	if err != nil {
		return err
	}
	ambient, ambientAll, err := readCapabilities(asked.GetAddAmbientCapabilities())
	if err != nil {
		return err
	}
	own := ownCapabilities()
	if ambientAll {
		ambient = own
	}
	if beyond := (add | ambient) &^ own; beyond != 0 && !sec.GetPrivileged() {
		return badRequest("the capabilities %s cannot be added, because monoplane, which runs as user %d, has not got them "+
			"itself", describeCapabilities(beyond), os.Geteuid())
	}
	if addAll && !isRoot() {
		return badRequest("all capabilities cannot be added: that needs root; monoplane runs as user %d", os.Geteuid())
	}
	if sec.GetPrivileged() || !dropAll && drop == 0 && ambient == 0 {
		return nil // It has all there is.
	}
	set := ^uint64(0)
	if dropAll && !addAll {
		set = add
	}
	set = (set | ambient) &^ drop
	req.SetCaps, req.Caps, req.Ambient = true, int64(set), int64(ambient&^drop)
	return nil
}

// filtered sets the seccomp profile.
func filtered(sec *runtimeapi.LinuxContainerSecurityContext, req *shimwire.StartRequest) error {
	if sec.GetSeccomp() == nil || sec.GetPrivileged() {
		return nil
	}
	var err error
	switch p := sec.GetSeccomp(); p.GetProfileType() {
	case runtimeapi.SecurityProfile_RuntimeDefault:
		var extra []string
		for _, name := range sec.GetCapabilities().GetAddCapabilities() {
			extra = append(extra, plainCapability(name))
		}
		req.Seccomp, err = seccomp.Default(extra)
	case runtimeapi.SecurityProfile_Localhost:
		path := strings.TrimPrefix(p.GetLocalhostRef(), "localhost/")
		if !filepath.IsAbs(path) {
			return badRequest("the seccomp profile %q is not an absolute path", path)
		}
		var text []byte
		if text, err = os.ReadFile(path); err == nil {
			req.Seccomp, err = seccomp.Compile(text)
		}
	}
	if err != nil {
		return badRequest("the seccomp profile cannot be used: %v", err)
	}
	return nil
}

// unappliedSecurity lists what a security context names and this runtime has no way to do.
func unappliedSecurity(sec *runtimeapi.LinuxContainerSecurityContext) []string {
	if o := sec.GetSelinuxOptions(); o.GetUser()+o.GetRole()+o.GetType()+o.GetLevel() != "" {
		return []string{fmt.Sprintf("seLinuxOptions: not applied: containers of image %s run with the label that the "+
			"machine's policy gives them", ImageName)}
	}
	return nil
}
