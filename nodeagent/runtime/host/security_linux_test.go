package host

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// rights is what /proc/PID/status says of a process's rights.
const rights = "grep -E '^(Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status"

// rightsOf reads what the script rights wrote.
func rightsOf(t *testing.T, output string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, line := range strings.Split(output, "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			out[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	if len(out) < 9 {
		t.Fatalf("output %q", output)
	}
	return out
}

func capText(set uint64) string { return fmt.Sprintf("%016x", set) }

// What a container is allowed is what it asks for, in process 1 and in what is run by ExecSync; what it does not ask
// for it is not denied. This runs as root, who has rights to give.
//
// spec: SEC-1
func TestRights(t *testing.T) {
	t.Parallel()
	onlyHost(t, "containers of images have fewer rights")
	if os.Geteuid() != 0 {
		t.Skip("only root has capabilities to take away")
	}
	own := ownCapabilities()
	const chown, bind, raw = 1 << 0, 1 << 10, 1 << 13
	nobody := &runtimeapi.Int64Value{Value: 65534}
	caps := func(add, drop, ambient []string) *runtimeapi.Capability {
		return &runtimeapi.Capability{AddCapabilities: add, DropCapabilities: drop, AddAmbientCapabilities: ambient}
	}
	for name, c := range map[string]struct {
		sec  *runtimeapi.LinuxContainerSecurityContext
		want map[string]string
	}{
		"nothing": {nil, map[string]string{"CapEff": capText(own), "NoNewPrivs": "0", "Seccomp": "0"}},
		"drop all": {&runtimeapi.LinuxContainerSecurityContext{Capabilities: caps(nil, []string{"ALL"}, nil)},
			map[string]string{"CapEff": capText(0), "CapPrm": capText(0), "CapBnd": capText(0)}},
		"drop all, add one": {&runtimeapi.LinuxContainerSecurityContext{
			Capabilities: caps([]string{"NET_BIND_SERVICE"}, []string{"all"}, nil)},
			map[string]string{"CapEff": capText(bind), "CapPrm": capText(bind), "CapBnd": capText(bind), "CapInh": capText(0)}},
		"drop some": {&runtimeapi.LinuxContainerSecurityContext{
			Capabilities: caps(nil, []string{"CAP_CHOWN", "net_raw"}, nil)},
			map[string]string{"CapEff": capText(own &^ (chown | raw)), "CapBnd": capText(own &^ (chown | raw))}},
		"add what is there": {&runtimeapi.LinuxContainerSecurityContext{Capabilities: caps([]string{"CHOWN"}, nil, nil)},
			map[string]string{"CapEff": capText(own)}},
		"another user": {&runtimeapi.LinuxContainerSecurityContext{RunAsUser: nobody, NoNewPrivs: true,
			RunAsGroup: &runtimeapi.Int64Value{Value: 7}, SupplementalGroups: []int64{8}},
			map[string]string{"Uid": "65534 65534 65534 65534", "Gid": "7 7 7 7", "Groups": "8", "CapEff": capText(0),
				"CapPrm": capText(0), "NoNewPrivs": "1"}},
		"another user by name": {&runtimeapi.LinuxContainerSecurityContext{RunAsUsername: "nobody"},
			map[string]string{"Uid": "65534 65534 65534 65534", "CapEff": capText(0)}},
		"ambient": {&runtimeapi.LinuxContainerSecurityContext{RunAsUser: nobody,
			Capabilities: caps([]string{"NET_BIND_SERVICE"}, []string{"ALL"}, []string{"NET_BIND_SERVICE"})},
			map[string]string{"CapEff": capText(bind), "CapAmb": capText(bind), "CapBnd": capText(bind)}},
		"groups only": {&runtimeapi.LinuxContainerSecurityContext{SupplementalGroups: []int64{8, 9}},
			map[string]string{"Uid": "0 0 0 0", "Groups": "8 9"}},
		"no escalation": {&runtimeapi.LinuxContainerSecurityContext{NoNewPrivs: true},
			map[string]string{"NoNewPrivs": "1", "CapEff": capText(own)}},
		"seccomp": {&runtimeapi.LinuxContainerSecurityContext{Seccomp: &runtimeapi.SecurityProfile{}},
			map[string]string{"NoNewPrivs": "0", "Seccomp": "2", "CapEff": capText(own)}},
		"all together": {&runtimeapi.LinuxContainerSecurityContext{RunAsUser: nobody, NoNewPrivs: true, ReadonlyRootfs: true,
			Seccomp: &runtimeapi.SecurityProfile{}, Capabilities: caps(nil, []string{"ALL"}, nil)},
			map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "CapEff": capText(0), "CapBnd": capText(0)}},
		"privileged": {&runtimeapi.LinuxContainerSecurityContext{Privileged: true, Seccomp: &runtimeapi.SecurityProfile{},
			Capabilities: caps([]string{"SYS_ADMIN"}, []string{"CHOWN"}, nil)},
			map[string]string{"CapEff": capText(own), "Seccomp": "0"}},
		"privileged without escalation": {&runtimeapi.LinuxContainerSecurityContext{Privileged: true, NoNewPrivs: true},
			map[string]string{"CapEff": capText(own), "NoNewPrivs": "1"}},
		"unconfined": {&runtimeapi.LinuxContainerSecurityContext{Seccomp: &runtimeapi.SecurityProfile{
			ProfileType: runtimeapi.SecurityProfile_Unconfined}}, map[string]string{"Seccomp": "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			id := n.run(n.plainSandbox("rights"), withSecurity(script("c", rights+"; exec sleep 1000"), c.sec, 0))
			var out string
			eventually(t, "process 1 has written", func() bool {
				out = strings.ReplaceAll(n.logText(id), "stdout F ", "")
				return strings.Contains(out, "Seccomp:")
			})
			exec, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id,
				Cmd: []string{"/bin/sh", "-c", rights}})
			if err != nil {
				t.Fatal(err)
			}
			for who, got := range map[string]map[string]string{"process 1": rightsOf(t, out),
				"exec": rightsOf(t, string(exec.GetStdout()))} {
				for k, want := range c.want {
					if got[k] != want {
						t.Errorf("%s: %s is %q, want %q", who, k, got[k], want)
					}
				}
			}
		})
	}
}

// A seccomp profile is enforced: the default one, and one in a file.
//
// spec: SEC-1
func TestSeccomp(t *testing.T) {
	t.Parallel()
	onlyHost(t, "libcontainer applies the profile")
	n := newNode(t)
	sb := n.plainSandbox("filtered")
	try := func(name, text string, p *runtimeapi.SecurityProfile, noNewPrivs bool) string {
		t.Helper()
		return n.output(n.run(sb, withSecurity(script(name, text),
			&runtimeapi.LinuxContainerSecurityContext{Seccomp: p, NoNewPrivs: noNewPrivs}, 0)))
	}
	const text = "mkdir $HOME/x; unshare -U true 2>&1 | grep -o 'not permitted'; echo end"
	home := t.TempDir()
	withHome := "HOME=" + home + "; " + text
	if got := try("default", withHome, &runtimeapi.SecurityProfile{}, true); got != "not permitted\nend\n" {
		t.Errorf("default: %q", got)
	}
	if !exists(filepath.Join(home, "x")) {
		t.Error("the default profile refuses to make a directory")
	}
	file := filepath.Join(home, "profile.json")
	if err := os.WriteFile(file, []byte(`{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
		{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	local := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: file}
	if got := try("local", "mkdir "+home+"/y 2>&1 | grep -o 'No space left'", local, true); got != "No space left\n" {
		t.Errorf("from a file: %q", got)
	}
	if err := os.WriteFile(file, []byte(`{"defaultAction": "SCMP_ACT_NOTHING"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	n.refuses(sb, withSecurity(script("bad", "true"), &runtimeapi.LinuxContainerSecurityContext{Seccomp: local}, 0),
		"SCMP_ACT_NOTHING")
	local.LocalhostRef = file + ".none"
	n.refuses(sb, withSecurity(script("none", "true"), &runtimeapi.LinuxContainerSecurityContext{Seccomp: local}, 0),
		"no such file")
}

// refuses proves that a container is refused by name.
func (n *node) refuses(sandbox string, config *runtimeapi.ContainerConfig, want string) {
	n.t.Helper()
	_, err := n.CreateContainer(n.t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox, Config: config})
	if err == nil || !strings.Contains(err.Error(), want) {
		n.t.Errorf("%s: %v, want %q", config.GetMetadata().GetName(), err, want)
	}
}

// What cannot be given is refused by name.
//
// spec: SEC-1
func TestRightsThatCannotBeGiven(t *testing.T) {
	t.Parallel()
	onlyHost(t, "images allow more")
	n := newNode(t)
	sb := n.plainSandbox("refused")
	type sec = runtimeapi.LinuxContainerSecurityContext
	caps := func(add ...string) *runtimeapi.Capability { return &runtimeapi.Capability{AddCapabilities: add} }
	ownUsers := &runtimeapi.NamespaceOption{UsernsOptions: &runtimeapi.UserNamespace{}}
	local := func(ref string) *runtimeapi.SecurityProfile {
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: ref}
	}
	refused := map[string]*sec{
		`unknown capability "FLY"`:              {Capabilities: caps("FLY")},
		"hostUsers: false":                      {NamespaceOptions: ownUsers},
		`no such user`:                          {RunAsUsername: "monoplane-nobody"},
		`the AppArmor profile "monoplane-none"`: {Apparmor: local("localhost/monoplane-none")},
		"is not an absolute path":               {Seccomp: local("x.json")},
	}
	if os.Geteuid() != 0 {
		refused["privileged needs root"] = &sec{Privileged: true}
		refused["CHOWN, NET_RAW cannot be added"] = &sec{Capabilities: caps("CAP_NET_RAW", "chown")}
		refused["all capabilities cannot be added"] = &sec{Capabilities: caps("ALL")}
		refused["run_as_user 1 needs root"] = &sec{RunAsUser: &runtimeapi.Int64Value{Value: 1}}
		refused["run_as_group 1 needs root"] = &sec{RunAsGroup: &runtimeapi.Int64Value{Value: 1}}
		refused["supplemental group 1 needs root"] = &sec{SupplementalGroups: []int64{1}}
	}
	for want, s := range refused {
		n.refuses(sb, withSecurity(containerConfig("c", "true"), s, 0), want)
	}
}

// A user without privileges can give up what it has: the settings of a restricted pod.
//
// spec: SEC-1
func TestRestricted(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	sb := n.sandbox("restricted")
	me, err := user.Current()
	if err != nil {
		t.Skip(err)
	}
	uid, _ := strconv.ParseInt(me.Uid, 10, 64)
	id := n.run(sb, withSecurity(script("c", rights), &runtimeapi.LinuxContainerSecurityContext{
		RunAsUser: &runtimeapi.Int64Value{Value: uid}, NoNewPrivs: true, Seccomp: &runtimeapi.SecurityProfile{},
		Capabilities: &runtimeapi.Capability{DropCapabilities: []string{"ALL"}}}, 0))
	got := rightsOf(t, n.output(id))
	for k, want := range map[string]string{"CapInh": capText(0), "CapPrm": capText(0), "CapEff": capText(0),
		"CapAmb": capText(0), "NoNewPrivs": "1", "Seccomp": "2"} {
		if got[k] != want {
			t.Errorf("%s is %q, want %q", k, got[k], want)
		}
	}
	// What a shim without root has for the sake of the mounts is not its containers'.
	if os.Geteuid() == 0 {
		return
	}
	for name, config := range map[string]*runtimeapi.ContainerConfig{"view": script("view", rights),
		"plain": script("plain", rights)} {
		in := sb
		if name == "plain" {
			in = n.plainSandbox("plain")
		}
		got := rightsOf(t, n.output(n.run(in, config)))
		for _, k := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
			if got[k] != capText(0) {
				t.Errorf("%s: %s is %q", name, k, got[k])
			}
		}
	}
}

// A container with stdin gets an input that is open and silent; one without is at its end at once.
func TestStdin(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	sb := n.plainSandbox("stdin")
	config := script("open", "echo up; read x; echo read")
	config.Stdin = true
	id := n.run(sb, config)
	eventually(t, "it has written", func() bool { return strings.Contains(n.logText(id), "up") })
	closed := n.output(n.run(sb, script("closed", "read x; echo read")))
	if got := n.logText(id); closed != "read\n" || strings.Contains(got, "read") {
		t.Errorf("open: %q, closed: %q", got, closed)
	}
	n.stop(id, 0)
}

// masked is what the agent passes for a container with the default procMount.
func masked() *runtimeapi.LinuxContainerSecurityContext {
	return &runtimeapi.LinuxContainerSecurityContext{
		MaskedPaths: []string{"/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/scsi",
			"/proc/timer_list", "/proc/monoplane-none", "/sys/devices/virtual/powercap", "/sys/firmware"},
		ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
	}
}

// What the kernel shows in /proc and /sys of the machine is hidden from containers, or cannot be changed by them, also
// where a missing path made a new root and where a volume lies at the path; the machine's own stays as it is. A
// privileged container, and one that is told no such paths, sees all of it.
//
// spec: SEC-1
func TestMaskedPaths(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	sb := n.sandbox("masked")
	n.needViews(sb)
	const look = `cat /proc/interrupts | wc -c; ls /sys/firmware | wc -l; touch /sys/firmware/x 2>/dev/null || echo sealed
grep -c ' /proc/sys ro[, ]' /proc/self/mountinfo; echo more 2>/dev/null > /proc/sys/kernel/hostname || echo unchanged
kill -0 $$ && test -e /proc/self/stat && echo proc`
	const want = "0\n0\nsealed\n1\nunchanged\nproc\n"
	src := volume(t, "src")
	over := mount(src, "/sys/firmware")
	for name, mounts := range map[string][]*runtimeapi.Mount{
		"alone": nil, "with a new root": {mount(src, "/monoplane-masked/x")}, "below a volume": {over},
	} {
		id := n.run(sb, withSecurity(script(name, look+"; exec sleep 1000", mounts...), masked(), 0))
		eventually(t, "process 1 has looked", func() bool { return strings.Contains(n.logText(id), "proc\n") })
		if got := strings.ReplaceAll(n.logText(id), "stdout F ", ""); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		exec, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id,
			Cmd: []string{"/bin/sh", "-c", look}})
		if err != nil || string(exec.GetStdout()) != want {
			t.Errorf("%s: run in it: %q %v", name, exec.GetStdout(), err)
		}
		if w := n.warnings(id); w != "" {
			t.Errorf("%s: warnings %s", name, w)
		}
	}
	if got := listing(t, src); !strings.Contains(got, "/f ") {
		t.Errorf("the volume has %q", got)
	}
	here, err := os.ReadFile("/proc/interrupts")
	if err != nil || len(here) == 0 {
		t.Fatalf("the machine's own: %q %v", here, err)
	}
	all := map[string]*runtimeapi.LinuxContainerSecurityContext{"unmasked": {}}
	if os.Geteuid() == 0 {
		all["privileged"] = masked()
		all["privileged"].Privileged = true
	}
	for name, sec := range all {
		got := n.output(n.run(sb, withSecurity(script(name, "cat /proc/interrupts | wc -l; grep -c ' /proc/sys ro[, ]' "+
			"/proc/self/mountinfo"), sec, 0)))
		if strings.HasPrefix(got, "0\n") || !strings.HasSuffix(got, "\n0\n") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
