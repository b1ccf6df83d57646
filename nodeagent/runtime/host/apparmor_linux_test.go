package host

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

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
// image and of the machine's files. One that is not loaded is refused by name. Without one, and with RuntimeDefault, a
// container runs by the machine's own rules.
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
			eventually(t, of+": "+container+" says what it may", func() bool {
				return strings.Contains(n.logText(id), "unconfined") && strings.Contains(n.logText(id), "secret")
			})
			n.stop(id, 0)
		}
		n.refuses(sb, asked("missing", profile(runtimeapi.SecurityProfile_Localhost, "localhost/"+name+"-none")),
			fmt.Sprintf("the AppArmor profile %q is not loaded", name+"-none"))
	}
	n.removeAll()
}

// The same for a user who is not root.
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
