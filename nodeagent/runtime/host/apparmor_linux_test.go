package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// profileVariable names the profile that root has loaded for the test below, when a user runs it.
const profileVariable = "MONOPLANE_TEST_APPARMOR"

// testProfile lets a process do everything but read a directory.
const testProfile = `abi <abi/3.0>,
profile %s flags=(attach_disconnected) {
  file, network, capability, signal, ptrace, mount, umount, pivot_root, unix,
  deny /**/closed/** r,
}
`

// A container has the AppArmor profile that it asks for, and so has what is run in it, as root and as a user, of an
// image and of the machine's files. One that is not loaded is refused by name. The default profile is root's to load:
// it is that of images without another, and of the machine's files when it is asked for.
//
// spec: SEC-1
func TestRootImageAppArmor(t *testing.T) {
	if _, err := os.Stat(appArmor); err != nil {
		t.Skip("AppArmor is not loaded: ", err)
	}
	name := os.Getenv(profileVariable)
	if os.Geteuid() == 0 {
		name = loadProfile(t)
	} else if name == "" {
		t.Skip("root loads profiles")
	}
	n := newNode(t, withImages(t))
	n.profile = newProfileLoader(n.cfg.Logger, time.Minute)
	sb := n.sandbox("pod")
	const look = "cat /proc/self/attr/apparmor/current; mkdir $DIR/closed; echo secret >$DIR/closed/f; cat $DIR/closed/f"
	profile := func(kind runtimeapi.SecurityProfile_ProfileType, ref string) *runtimeapi.SecurityProfile {
		return &runtimeapi.SecurityProfile{ProfileType: kind, LocalhostRef: ref}
	}
	for of, as := range map[string]func(*runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig{
		"image": ofImage, "host": func(c *runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig { return c },
	} {
		asked := func(container string, p *runtimeapi.SecurityProfile) *runtimeapi.ContainerConfig {
			config := script(container+"-"+of, strings.ReplaceAll(look, "$DIR", t.TempDir())+"; exec sleep 1000")
			if of == "image" {
				config = script(container, strings.ReplaceAll(look, "$DIR", "/tmp")+"; exec sleep 1000")
			}
			config = as(withSecurity(config, &runtimeapi.LinuxContainerSecurityContext{Apparmor: p}, 0))
			return config
		}
		confined := n.run(sb, asked("confined", profile(runtimeapi.SecurityProfile_Localhost, name)))
		eventually(t, of+": it has been refused what the profile denies", func() bool {
			return strings.Contains(n.logText(confined), "ermission denied")
		})
		if text := n.logText(confined); !strings.Contains(text, name+" (enforce)") || strings.Contains(text, "secret") {
			t.Errorf("%s: with the profile: %s", of, text)
		}
		out, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: confined,
			Cmd: []string{"cat", "/proc/self/attr/apparmor/current"}})
		if err != nil || string(out.GetStdout()) != name+" (enforce)\n" {
			t.Errorf("%s: a command in it: %v %v", of, out, err)
		}
		n.stop(confined, 0)
		for container, p := range map[string]*runtimeapi.SecurityProfile{
			"none": nil, "default": profile(runtimeapi.SecurityProfile_RuntimeDefault, ""),
			"unconfined": profile(runtimeapi.SecurityProfile_Unconfined, ""),
		} {
			id := n.run(sb, asked(container, p))
			want := "unconfined"
			if os.Geteuid() == 0 && (container == "default" || container == "none" && of == "image") {
				want = defaultProfileName + " (enforce)"
			}
			eventually(t, of+": "+container+" says what it may", func() bool {
				return strings.Contains(n.logText(id), "secret")
			})
			if got := n.logText(id); got != "stdout F "+want+"\nstdout F secret\n" {
				t.Errorf("%s: %s: %q, want %q", of, container, got, want)
			}
			n.stop(id, 0)
		}
		n.refuses(sb, asked("missing", profile(runtimeapi.SecurityProfile_Localhost, "localhost/"+name+"-none")),
			fmt.Sprintf("the AppArmor profile %q is not loaded", name+"-none"))
	}
	n.removeAll()
}

// The default profile forbids to mount, and to change the machine by /proc and /sys, in a container that has the
// capabilities for it and sees them unmasked. It lets its processes signal and look at each other, and be told to
// stop, and holds for what is executed in it.
//
// spec: SEC-1
func TestRootImageDefaultAppArmor(t *testing.T) {
	if _, err := os.Stat(appArmor); err != nil || os.Geteuid() != 0 {
		t.Skip("AppArmor is not loaded, or not by this user")
	}
	shut := []string{"/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/proc/sys/kernel/sysrq", "/proc/sys/kernel/sem",
		"/proc/sys/vm/swappiness", "/proc/sys/fs/suid_dumpable", "/proc/irq/default_smp_affinity",
		"/sys/kernel/mm/transparent_hugepage/enabled", "/sys/module/printk/parameters/time",
		"/sys/devices/system/cpu/cpu1/online"}
	open := []string{"/proc/sys/kernel/shmmax", "/proc/sys/kernel/shm_rmid_forced", "/proc/self/oom_score_adj", "/file",
		"/dev/null", "/sys/fs/cgroup/cgroup.procs"}
	look := "for f in " + strings.Join(slices.Concat(shut, open), " ") + `; do
  if (: >>$f) 2>/dev/null; then echo $f open; else echo $f shut; fi
done
for f in /proc/kcore /sys/firmware/memmap/0/start; do
  if head -c 1 $f >/dev/null 2>&1; then echo $f open; else echo $f shut; fi
done
if mkdir /m && mount -t tmpfs none /m 2>/dev/null; then echo mount open; else echo mount shut; fi
sleep 1000 & ls /proc/$!/fd >/dev/null && kill $! && echo child ended
trap 'echo told; exit 7' TERM
echo looked
while :; do sleep 1000 & wait $!; done`
	n := newNode(t, withImages(t))
	n.profile = newProfileLoader(n.cfg.Logger, time.Minute)
	sb := n.sandbox("pod")
	for of, kind := range map[string]runtimeapi.SecurityProfile_ProfileType{
		"default":    runtimeapi.SecurityProfile_RuntimeDefault,
		"unconfined": runtimeapi.SecurityProfile_Unconfined,
	} {
		config := ofImage(withSecurity(script(of, look, mount("/sys", "/sys"),
			mount("/sys/fs/cgroup", "/sys/fs/cgroup")), &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			Capabilities:     &runtimeapi.Capability{AddCapabilities: []string{"ALL"}},
			Apparmor:         &runtimeapi.SecurityProfile{ProfileType: kind},
		}, 0))
		id := n.run(sb, config)
		eventually(t, of+": it has looked", func() bool { return strings.Contains(n.logText(id), "looked\n") })
		text := n.logText(id)
		for _, path := range append(shut, "/proc/kcore", "/sys/firmware/memmap/0/start", "mount") {
			want := map[string]string{"default": path + " shut\n", "unconfined": path + " open\n"}[of]
			if !strings.Contains(text, want) {
				t.Errorf("%s: not %q", of, want)
			}
		}
		for _, path := range open {
			if !strings.Contains(text, path+" open\n") {
				t.Errorf("%s: %s is not open", of, path)
			}
		}
		out, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id,
			Cmd: []string{"sh", "-c", "cat /proc/self/attr/current; ls /proc/1/fd >/dev/null && kill -0 1 && echo seen"}})
		want := map[string]string{"default": defaultProfileName + " (enforce)\n", "unconfined": "unconfined\n"}[of]
		if err != nil || string(out.GetStdout()) != want+"seen\n" {
			t.Errorf("%s: a command in it: %v %v", of, out, err)
		}
		n.stop(id, 60)
		if s := n.status(id); s.GetExitCode() != 7 || !strings.Contains(n.logText(id), "child ended\n") ||
			!strings.Contains(n.logText(id), "told\n") {
			t.Errorf("%s: it has ended with %d, and said:\n%s", of, s.GetExitCode(), n.logText(id))
		}
	}

	run := exec.Command("apparmor_parser", "--remove")
	run.Stdin = strings.NewReader("profile " + defaultProfileName + " {}")
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	id := n.run(sb, ofImage(script("removed", "cat /proc/self/attr/current; exec sleep 1000")))
	eventually(t, "it is loaded again when somebody has removed it", func() bool {
		return strings.Contains(n.logText(id), defaultProfileName+" (enforce)\n")
	})
	n.removeAll()
}

// The default profile is loaded once, by whoever needs it first, and anew if it has been removed. What cannot be
// loaded is said once and not tried again; a loader that hangs keeps nobody longer than it may. If loading fails, what
// the kernel has already is used.
func TestDefaultProfileIsLoaded(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "it starts nothing")
	for name, c := range map[string]struct {
		there, hangs bool // whether the kernel has one before, and the loader never returns
		fails        error
		lists        bool // whether the kernel has it afterwards
		want, why    string
	}{
		"loaded":              {lists: true, want: defaultProfileName},
		"replaced":            {there: true, lists: true, want: defaultProfileName},
		"fails":               {fails: errors.New("no parser"), why: "no parser"},
		"fails, but is there": {there: true, lists: true, fails: errors.New("no parser"), want: defaultProfileName},
		"hangs":               {hangs: true, why: "not loaded after 10s"},
		"hangs, but is there": {there: true, lists: true, hangs: true, want: defaultProfileName},
		"has no effect":       {why: "does not list it"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said lockedBuffer
				var has atomic.Bool
				has.Store(c.there)
				loads, end := atomic.Int32{}, make(chan struct{})
				l := &profileLoader{log: slog.New(slog.NewTextHandler(&said, nil)), patience: 10 * time.Second, has: has.Load}
				l.load = func(context.Context) error {
					loads.Add(1)
					if c.hangs {
						<-end
						return errors.New("killed")
					}
					has.Store(c.lists)
					return c.fails
				}
				var all sync.WaitGroup
				begin := time.Now()
				for range 10 {
					all.Go(func() {
						got, err := l.name()
						if got != c.want || c.why == "" && err != nil || c.why != "" && !strings.Contains(fmt.Sprint(err), c.why) {
							t.Errorf("%q, %v; want %q, %q", got, err, c.want, c.why)
						}
					})
					if c.hangs {
						all.Wait() // The clock of a bubble stands while somebody waits for a mutex.
					}
				}
				all.Wait()
				if took := time.Since(begin); took > l.patience || !c.hangs && took > 0 {
					t.Errorf("took %v", took)
				}
				failed := c.fails != nil || c.hangs || !c.lists
				warnings := strings.Count(said.String(), "cannot be loaded")
				if loads.Load() != 1 || failed != (warnings == 1) || warnings > 1 {
					t.Errorf("loaded %d times, said: %s", loads.Load(), said.String())
				}
				if !failed {
					has.Store(false)
					if got, err := l.name(); got != c.want || err != nil || loads.Load() != 2 {
						t.Errorf("after it was removed: %q, %v, loaded %d times", got, err, loads.Load())
					}
				}
				close(end)
			})
		})
	}
	if name, err := (*profileLoader)(nil).name(); name != "" || err != nil {
		t.Errorf("without AppArmor: %q, %v", name, err)
	}
}

// Containers of images have the default profile unless they name another or are privileged; those of the machine's
// files have it when they ask. spec: SEC-1
func TestWhoHasTheDefaultProfile(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "it starts nothing")
	l := &profileLoader{log: slog.New(slog.DiscardHandler), has: func() bool { return true },
		load: func(context.Context) error { return nil }, patience: time.Minute}
	asked := func(kind runtimeapi.SecurityProfile_ProfileType) *runtimeapi.SecurityProfile {
		return &runtimeapi.SecurityProfile{ProfileType: kind}
	}
	for name, c := range map[string]struct {
		profile     *runtimeapi.SecurityProfile
		privileged  bool
		image, host bool
	}{
		"none":                {image: true},
		"none, privileged":    {privileged: true},
		"default":             {profile: asked(runtimeapi.SecurityProfile_RuntimeDefault), image: true, host: true},
		"default, privileged": {profile: asked(runtimeapi.SecurityProfile_RuntimeDefault), privileged: true},
		"unconfined":          {profile: asked(runtimeapi.SecurityProfile_Unconfined)},
		"another":             {profile: asked(runtimeapi.SecurityProfile_Localhost)},
	} {
		for image, want := range map[string]bool{"sha256:1": c.image, "": c.host} {
			config := withSecurity(containerConfig("c", "true"), &runtimeapi.LinuxContainerSecurityContext{
				Apparmor: c.profile, Privileged: c.privileged}, 0)
			r := &Runtime{profile: l}
			got, err := r.defaultProfileOf(&container{rec: &containerRecord{config: config, image: image}})
			if (got == defaultProfileName) != want || err != nil {
				t.Errorf("%s, image %q: %q, %v", name, image, got, err)
			}
		}
	}
}

// A container for which the default profile cannot be loaded runs without, and says so if it has asked for it.
func TestWithoutTheDefaultProfile(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.profile = &profileLoader{log: n.cfg.Logger, has: func() bool { return false }, patience: time.Minute,
		load: func(context.Context) error { return errors.New("no parser") }}
	sb := n.sandbox("pod")
	for name, p := range map[string]*runtimeapi.SecurityProfile{"none": nil, "default": {}} {
		id := n.run(sb, withSecurity(containerConfig(name, "sleep", "1000"),
			&runtimeapi.LinuxContainerSecurityContext{Apparmor: p}, 0))
		if w := n.warnings(id); strings.Contains(w, "RuntimeDefault is not applied: no parser") != (p != nil) {
			t.Errorf("%s: %s", name, w)
		}
		n.stop(id, 0)
	}
}

// Shims must be able to end what they have started, whatever they are confined by themselves.
func TestDefaultProfileLetsItsShimSignal(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "it starts nothing")
	for label, want := range map[string]string{
		"unconfined": "", "": "", "/usr/bin/monoplane": `peer="/usr/bin/monoplane",`, "a\"b": "",
	} {
		text := defaultProfile(label, true)
		if strings.Count(text, "signal (receive) peer=unconfined,") != 1 || !strings.Contains(text, want) ||
			want == "" && strings.Count(text, "signal (") != 2 {
			t.Errorf("%s: %s", label, text)
		}
		if bare := defaultProfile(label, false); strings.Contains(text, "%!") || text != "abi <abi/3.0>,\n"+bare {
			t.Errorf("%s: %s and %s", label, text, bare)
		}
	}
}

// TestRootImageAppArmor for a user who is not root.
//
// spec: SEC-1
func TestRootAppArmorOfUser(t *testing.T) {
	if _, err := os.Stat(appArmor); err != nil || os.Geteuid() != 0 {
		t.Skip("AppArmor is not loaded, or not by this user")
	}
	withImages(t) // Or it is skipped.
	cmd := asSomeUser(t, "-test.run=^TestRootImageAppArmor$")
	cmd.Env = append(cmd.Env, profileVariable+"="+loadProfile(t))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// loadProfile loads a profile until the end of the test.
func loadProfile(t *testing.T) string {
	t.Helper()
	name := fmt.Sprint("monoplane-test-", os.Getpid())
	parser := func(action string) {
		t.Helper()
		cmd := exec.Command("apparmor_parser", "--skip-cache", action)
		cmd.Stdin = strings.NewReader(fmt.Sprintf(testProfile, name))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("apparmor_parser %s: %v\n%s", action, err, out)
		}
	}
	parser("--replace")
	t.Cleanup(func() { parser("--remove") })
	if loaded, err := loadedProfiles(); !slices.Contains(loaded, name) {
		t.Fatalf("the profile is not loaded: %v %v", loaded, err)
	}
	return name
}
