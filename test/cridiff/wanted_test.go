//go:build rootonly

package cridiff_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// difference is one that is wanted, and why. It names one or more scenarios (none: all of them) and a key, and what
// both sides say: the whole of it, or a pattern in which * stands for anything. Between | are things of which either
// side says one. In what ours says, <1> is what the first * of theirs stands for, and so on.
type difference struct {
	scenario, key, theirs, ours string
	why                         string
}

const (
	unknown = "Unknown"
	invalid = "InvalidArgument"
	either  = "|"
)

// accepts tells whether these two values are what is wanted.
func (w difference) accepts(theirs, ours string) bool {
	for a := range strings.SplitSeq(w.theirs, either) {
		stars, ok := match(a, theirs)
		if !ok {
			continue
		}
		var words []string
		for i, s := range stars {
			words = append(words, "<"+strconv.Itoa(i+1)+">", s)
		}
		for b := range strings.SplitSeq(strings.NewReplacer(words...).Replace(w.ours), either) {
			if _, ok := match(b, ours); ok {
				return true
			}
		}
	}
	return false
}

// eachScenario makes rows of one scenario each, all of which have to be needed.
func eachScenario(rows []difference) (out []difference) {
	for _, row := range rows {
		for scenario := range strings.SplitSeq(row.scenario, either) {
			one := row
			one.scenario = scenario
			out = append(out, one)
		}
	}
	return out
}

// A row that accepts whatever one side says would hide a fault.
func TestRootWantedNamesBothAnswers(t *testing.T) {
	for _, row := range slices.Concat(chance, wanted) {
		for _, pattern := range slices.Concat([]string{row.key}, strings.Split(row.theirs, either),
			strings.Split(row.ours, either)) {
			if strings.Trim(pattern, "*") == "" {
				t.Errorf("this row is too wide: %+v", row)
			}
		}
		if row.why == "" {
			t.Errorf("this row has no reason: %+v", row)
		}
	}
}

// chance are differences that come and go by themselves: a table in which they are missing is right, too.
var chance = []difference{
	{"host network", "* network links", "lo*", "lo*", "other pods come and go meanwhile"},
	{"", "* descriptor 0", "char 0666 *:* device 1:3 *", "char 0666 0:0 device 1:3 <3>",
		"runc 1.1 gives the machine's /dev/null to the user of the container that it starts, which other cases see"},
	{"", "* times", "true true false false false", "true true true false false",
		"containerd notes that a container has started when it may have ended"},
}

const (
	noSuchUser = "image with unknown group|image with unknown user|user name unknown"
	// What is asked for here cannot be done as it is said.
	notObeyed = "cpu shares 1|cpuset impossible|oom score too large|image with a relative directory|" +
		"working directory relative"
	noSuchFile = "error: no such file or directory"
)

var wanted = eachScenario([]difference{
	// What containerd 1.6 and runc 1.1 are behind in.
	{"", "*.imageId", nothing, "<image>", "the field came after containerd 1.6"},
	{"", "* mount *", "tmpfs ro,relatime propagation=* source=tmpfs super=ro",
		"tmpfs ro,relatime propagation=<1> source=tmpfs super=nr_inodes=1,ro,size=4k", "runc 1.1 does not bound what masks"},
	{"mount both ways", "* mount *", "tmpfs ro,relatime propagation= source=tmpfs super=ro",
		"tmpfs ro,relatime propagation=shared source=tmpfs super=nr_inodes=1,ro,size=4k", "both of what is above and below"},
	{"mount both ways", "* mount *", "*propagation=*", "<1>propagation=shared<2>",
		"runc 1.1 sets the propagation of the root before it mounts more"},
	{"", "* place /sys/fs/cgroup", "directory 0555 0:0", "directory 0755 0:0", "runc 1.1 has another mode"},
	{"add ALL drop ALL|drop ALL|drop ALL add KILL", "* write in /sys/fs/cgroup",
		"file permission denied, device permission denied", "file ok, device operation not permitted",
		"the same mode; the directory is a tmpfs"},
	{"seccomp default", "* call io_uring_setup", "EFAULT", "EPERM", "the profile of containerd 1.6 knows no io_uring"},
	{"seccomp default", "* call process_vm_readv", "EPERM", "EINVAL",
		"since Linux 4.8 ptrace is safe to allow; so do newer profiles"},
	{"seccomp default", "* vsock socket", "ok", "error: operation not permitted",
		"newer profiles close this way to the hypervisor"},
	{"add with prefix", "* status Cap*", "00000000a80425fb", "00000000a80c25fb",
		"CAP_X is X: containerd 1.6 takes it for CAP_CAP_X, and ignores that"},
	{"privileged|privileged with more", "* mount /sys #1", "sysfs rw,* propagation=* source=sysfs super=ro",
		"sysfs rw,<1> propagation=<2> source=sysfs super=rw|sysfs rw,<1> propagation=shared source=sysfs super=rw",
		"containerd's pause container has the same sysfs, read-only"},
	{"privileged|privileged with more", "* write in /sys", "file read-only file system, device read-only file system",
		"file permission denied, device operation not permitted|file permission denied, device permission denied",
		"the same"},
	{"mount at /dev", "container start: code", unknown, "OK", "runc 1.1 needs /dev/null, where nothing is masked, too"},
	{"mount at /dev", "exited.exitCode", "128", "7|3", "the same"},
	{"mount at /dev", "exited.reason", "StartError", "Error|Completed", "the same"},
	{"device in place of another", "container start: code", "OK", unknown,
		"a /dev/null that is none makes masks harmless (CVE-2025-31133)"},
	{"device in place of another", "exited.exitCode", "7|3", "128", "it has not started"},
	{"device in place of another", "exited.reason", "Error|Completed", "StartError", "the same"},
	{"memory", "*.memorySwapLimitInBytes", "268435456", nothing,
		"the limit of both is that of memory, and is not said again"},
	{"memory tiny", "*.memorySwapLimitInBytes", "4096", nothing, "the same"},
	{"ends", "*.memorySwapLimitInBytes", "25165824", nothing, "the same"},
	{"oom score -900", "*.resources.linux.oomScoreAdj", nothing, "-900", "containerd 1.6 does not say one below 0 again"},
	{"huge pages", "*.hugepageLimits.0.pageSize", nothing, "2MB", "containerd 1.6 does not say them again"},
	{"huge pages", "*.hugepageLimits.1.pageSize", nothing, "1GB", "the same"},
	{"huge pages of an unknown size", "*.hugepageLimits.0.pageSize", nothing, "3MB", "the same"},
	{"huge pages of an unknown size", "*.hugepageLimits.0.limit", nothing, "1048576", "the same"},
	// What containers are told later, or sooner.
	{"device missing|device that is none|group alone|image without command|mount without source|no metadata|" +
		"seccomp file broken|seccomp file missing", "container create: code", unknown, invalid,
		"containerd has no kinds of errors but NotFound"},
	{"", "sandbox: code", unknown, invalid, "the same"},
	{"exec", "exec none: code", unknown, invalid, "the same"},
	{noSuchUser + "|mount of a broken link", "container create: code", unknown, "OK",
		"users and links of mounts are looked up when the container starts"},
	{noSuchUser + "|mount of a broken link", "container start: code", nothing, unknown, "the same"},
	{"add unknown|command empty|drop unknown|mount at the root|mount nowhere|no name", "container create: code",
		"OK|Unknown|NotFound", invalid, "what cannot start is refused when it is created"},
	{"pod without name|pod without uid", "sandbox: code", "OK|Unknown", invalid,
		"a pod without a name or a uid is nobody's"},
	{"hostname too long", "sandbox: code", unknown, "OK", "a host name that is too long is left out, with a warning"},
	{"hostname too long", "container *: code", nothing, "OK", "the same"},
	{"AppArmor default", "container create: code", unknown, "OK",
		"the default profile is what the machine has, also where it has no AppArmor"},
	{"AppArmor default", "container start: code", nothing, "OK", "the same"},
	{"", "exited times", "true false true true false", "true true true false false",
		"a start that fails has a time, too"},
	{"privileged beyond the pod", "container create: code", unknown, "OK",
		"containerd holds the caller to CRI, by which the pod says that it has a privileged container"},
	{"privileged beyond the pod", "container start: code", nothing, "OK", "the same"},
	// Calls that are made again, and what is not there.
	{"twice", "another of the name: code", unknown, "AlreadyExists", "this says which kind of error it is"},
	{"twice", "create in a stopped sandbox: code", "NotFound", "FailedPrecondition", "the sandbox is there"},
	{"twice", "start*: code", unknown, "OK", "a start that is asked for again has happened (SAFE-4)"},
	{"twice", "sandbox stop: code", "NotFound", "OK", "CRI: to stop what is gone is no error"},
	{"unknown ids", "stop pod: code", "NotFound", "OK", "the same"},
	{"lists", "list by part of an id", "[runs CONTAINER_RUNNING]", "[]", "CRI: the filter is an id"},
	// Logs.
	{"log", "binary log", `"\x00\x01\n\xff x\n"`, `"\x00\x01\r\n\xff x\n"`,
		"containerd drops carriage returns at the ends of lines"},
	{"log", "binary form", "stdout F 2\nstdout F 3\n", "stdout F 3\nstdout F 3\n", "the same"},
	// What is ours.
	{"", "*realtime timeout", "unlimited unlimited*", "<marker> unlimited<1>",
		"by this limit a shim knows its processes"},
	{"image by id|image with a directory of others|image with a missing directory and a user", "* status Groups",
		"*1002", "<1>78 1002", "containerd 1.6 gives the groups of root to the user of an image"},
	{"image by known id|image by name", "* status Groups", "*34|*34 77", "<1>34 77 78", "the same"},
	{notObeyed, "container start: code", unknown, "OK",
		"limits that cannot be set are said in the info of the status; relative directories are below /"},
	{notObeyed, "exited.exitCode", "128", "7|3", "the same"},
	{notObeyed, "exited.reason", "StartError", "Error|Completed", "the same"},
	{"no linux|no resources", "* self oom_score_adj", "1|1000", "0",
		"containerd's shim has a score of its own, seldom that of another pod's container, and hands it on"},
	{"no linux|no resources", "outside oom_score_adj", "1|1000", "0", "the same"},
	{"no linux|no security context", "* process 1", "false", "true",
		"the container says that processes are shared, and the pod that not"},
	{"nothing at /etc/hosts", "* mount /etc/hosts #1", "* propagation=", nothing,
		"kubelets and Monoplane's agent mount this file"},
	{"nothing at /etc/hosts", "* content /etc/hosts", "*localhost*", noSuchFile, "the same"},
	{"nothing at /etc/hosts", "* place /etc/hosts", "file 0644 0:0 links=1", noSuchFile, "the same"},
	{"nothing at /etc/hosts", "* open for writing /etc/hosts",
		"ok|error: permission denied|error: read-only file system", noSuchFile, "the same"},
	{"mount twice at one path", "* mount /mnt #2", "tmpfs rw,relatime propagation= source=tmpfs super=mode=755,rw",
		nothing, "the last one is mounted, not both"},
	{"mount at /sys", "* mount /sys/fs/cgroup #1", "tmpfs rw,nosuid,nodev,noexec,relatime *|cgroup2 *", nothing,
		"no cgroups are mounted to be hidden by the mount"},
	{"mount at /sys", "* mount /sys/fs/cgroup/* #1", "cgroup *", nothing, "the same"},
	{"host network", "* namespace uts", "the machine's", "number 0", "the machine's name cannot be changed from a pod"},
	{"host IPC", "* mount /dev/shm #1", "tmpfs rw,* propagation=* source=* super=*",
		"tmpfs rw,nosuid,nodev,noexec* propagation=<2> source=<3> super=<4>",
		"mounted as a pod's own is: no programs, no devices"},
	{"host IPC", "* write in /dev/shm", "file ok, device opens, device ok",
		"file ok, device opens: permission denied, device ok", "the same"},
})
