//go:build rootonly

package cridiff_test

// difference is one that is wanted, and why. In its patterns * stands for anything; an empty one fits all.
type difference struct {
	scenario, key, theirs, ours string
	why                         string
}

const (
	unknown = "Unknown"
	invalid = "InvalidArgument"
)

// chance are differences that come and go by themselves: a table in which they are missing is right, too.
var chance = []difference{
	{"host network", "* network links", "", "", "other pods come and go meanwhile"},
	{"", "* descriptor 0", "char 0666 * device 1:3 *", "char 0666 0:0 device 1:3 *",
		"runc 1.1 gives the machine's /dev/null to the user of the container that it starts, which other cases see"},
	{"", "* times", "true true false false false", "true true true false false",
		"containerd notes that a container has started when it may have ended"},
}

var wanted = []difference{
	// What containerd 1.6 and runc 1.1 are behind in.
	{"", "*.imageId", nothing, "<image>", "the field came after containerd 1.6"},
	{"", "* mount *", "tmpfs ro,relatime propagation=* source=tmpfs super=ro",
		"tmpfs ro,relatime propagation=* source=tmpfs super=nr_inodes=1,ro,size=4k", "runc 1.1 does not bound what masks"},
	{"", "* place /sys/fs/cgroup", "directory 0555 0:0", "directory 0755 0:0", "runc 1.1 has another mode"},
	{"", "* write in /sys/fs/cgroup", "file permission denied*", "file ok*", "the same mode; the directory is a tmpfs"},
	{"", "* call io_uring_setup", "EFAULT", "EPERM", "the profile of containerd 1.6 knows no io_uring"},
	{"", "* call process_vm_readv", "EPERM", "EINVAL", "since Linux 4.8 ptrace is safe to allow; so do newer profiles"},
	{"", "* vsock socket", "ok", "error: operation not permitted", "newer profiles close this way to the hypervisor"},
	{"add with prefix", "* status Cap*", "", "", "CAP_X is X: containerd 1.6 takes it for CAP_CAP_X, and ignores that"},
	{"mount both ways", "* mount *", "", "* propagation=shared*",
		"runc 1.1 sets the propagation of the root before it mounts more"},
	{"", "* mount /sys #1", "sysfs rw,*super=ro", "sysfs rw,*super=rw",
		"containerd's pause container has the same sysfs, read-only"},
	{"", "* write in /sys", "file read-only*", "file permission denied*", "the same"},
	{"device in place of another", "container start: code", "OK", unknown,
		"a /dev/null that is none makes masks harmless (CVE-2025-31133)"},
	{"device in place of another", "exited.exitCode", "*", "128", "it has not started"},
	{"device in place of another", "exited.reason", "*", "StartError", "the same"},
	{"", "*.memorySwapLimitInBytes", "", nothing, "the limit of both is that of memory, and is not said again"},
	{"oom score -900", "*.resources.linux.oomScoreAdj", nothing, "", "containerd 1.6 does not say one below 0 again"},
	{"huge pages*", "*.resources.linux.hugepageLimits.*", nothing, "", "containerd 1.6 does not say them again"},
	// What containers are told later, or sooner.
	{"", "*: code", unknown, invalid, "containerd has no kinds of errors but NotFound"},
	{"", "container create: code", unknown, "OK", "users and links of mounts are looked up when the container starts"},
	{"", "container create: code", "OK", invalid, "what cannot start is refused when it is created"},
	{"", "sandbox: code", "OK", invalid, "a pod without a name or a uid is nobody's"},
	{"", "sandbox: code", unknown, "OK", "a host name that is too long is left out, with a warning"},
	{"AppArmor default", "", "", "", "the default profile is what the machine has, also where it has no AppArmor"},
	{"", "exited times", "true false true true false", "true true true false false",
		"a start that fails has a time, too"},
	// Calls that are made again, and what is not there.
	{"twice", "another of the name: code", unknown, "AlreadyExists", "this says which kind of error it is"},
	{"twice", "create in a stopped sandbox: code", "NotFound", "FailedPrecondition", "the sandbox is there"},
	{"twice", "start*: code", unknown, "OK", "a start that is asked for again has happened (SAFE-4)"},
	{"", "sandbox stop: code", "NotFound", "OK", "CRI: to stop what is gone is no error"},
	{"unknown ids", "stop pod: code", "NotFound", "OK", "the same"},
	{"lists", "list by part of an id", "", "[]", "CRI: the filter is an id"},
	// Logs.
	{"log", "binary *", "", "", "containerd drops carriage returns at the ends of lines"},
	// What is ours.
	{"", "*realtime timeout*", "unlimited unlimited*", "* unlimited*", "by this limit a shim knows its processes"},
	{"image by *", "* status Groups", "", "", "containerd 1.6 gives the groups of root to the user of an image"},
	{"image with a*", "* status Groups", "", "", "the same"},
	{"", "container start: code", unknown, "OK",
		"limits that cannot be set are said in the info of the status; relative directories are below /"},
	{"", "exited.*", "128", "7", "the same"},
	{"", "exited.*", "StartError", "Error", "the same"},
	{"", "* self oom_score_adj", "1*", "0",
		"containerd's shim has a score of its own, seldom that of another pod's container, and hands it on"},
	{"", "outside oom_score_adj", "1*", "0", "the same"},
	{"no *", "* process 1", "false", "true", "the container says that processes are shared, and the pod that not"},
	{"nothing at /etc/hosts", "", "", "", "kubelets and Monoplane's agent mount this file"},
	{"mount twice at one path", "", "", "", "the last one is mounted, not both"},
	{"mount at /sys", "", "", "", "what is deeper is mounted later: the cgroups over the mount"},
	{"host network", "* namespace uts", "the machine's", "number 0", "the machine's name cannot be changed from a pod"},
	{"host IPC", "* /dev/shm*", "", "", "mounted as a pod's own is: no programs, no devices"},
}
