package nodeagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/hostinfo"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/resolvconf"
)

// nodeFacts returns what the configuration of all pods here has in common.
func (a *Agent) nodeFacts() criconfig.Node {
	n := criconfig.Node{
		SeccompDir: a.cfg.SeccompDir, SeccompDefault: a.cfg.SeccompDefault, ClusterDomain: a.cfg.ClusterDomain,
		Memory:    bytesOf(a.cfg.Machine.Capacity["memory"]),
		MemoryQoS: a.cfg.MemoryQoS, PodMaxPIDs: a.cfg.PodMaxPIDs, PageSize: int64(os.Getpagesize()),
	}
	for _, ip := range a.cfg.ClusterDNS {
		n.ClusterDNS = append(n.ClusterDNS, ip.String())
	}
	n.AllocatableMemory = bytesOf(a.cfg.allocatable()["memory"])
	if !a.cfg.Simulated {
		n.MaskedPaths, n.HugePages, n.CgroupV2 = throttles(), hugePageSizes(), cgroupV2()
		n.Swap = swaps(n.CgroupV2)
	}
	return n
}

func bytesOf(q *metav1.Quantity) int64 {
	n, err := value.Quantity(q)
	if err != nil {
		return 0
	}
	return n.Value()
}

// hugePageSizes returns the sizes of huge pages that this machine has.
func hugePageSizes() []string {
	var out []string
	for _, size := range hostinfo.HugePageSizes() {
		out = append(out, criconfig.HugePageName(size))
	}
	return out
}

// cgroups is where they are mounted.
const cgroups = "/sys/fs/cgroup"

// cgroupV2 reports whether this machine has the unified hierarchy of cgroups alone.
func cgroupV2() bool {
	_, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers"))
	return err == nil
}

// swaps reports whether this machine has swap space, and cgroups that can keep containers off it.
func swaps(v2 bool) bool {
	const heading = 1
	areas, err := os.ReadFile("/proc/swaps")
	if err != nil || bytes.Count(areas, []byte{'\n'}) <= heading {
		return false
	}
	if v2 {
		own, _ := os.ReadFile("/proc/self/cgroup")
		return hasSetting(cgroups, strings.TrimSpace(strings.TrimPrefix(string(own), "0::")), "memory.swap.max")
	}
	_, err = os.Stat(filepath.Join(cgroups, "memory", "memory.memsw.limit_in_bytes"))
	return err == nil
}

// hasSetting reports whether a group of cgroup2, or one above it, has a file. Where the runtime has moved this process
// into a group of its own, controllers are handed down beside that only, and the root has no settings.
func hasSetting(root, group, file string) bool {
	for group = filepath.Clean("/" + group); ; group = filepath.Dir(group) {
		if _, err := os.Stat(filepath.Join(root, group, file)); err == nil || group == "/" {
			return err == nil
		}
	}
}

// throttles returns the counters by which a container could find out what else this machine is busy with.
func throttles() []string {
	paths, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle") // the pattern is well-formed
	return paths
}

// containerFacts returns what the configuration of a container needs to know. Ref is what the runtime calls its image.
func (j job) containerFacts(
	ctx context.Context, action podstate.StartContainer, ref string,
) (criconfig.Facts, error) {
	f := j.facts()
	f.TargetID = action.TargetID // spec: INIT-6
	if name := podstate.TargetAt(j.pod, action.Index); name != "" && f.TargetID == "" {
		return f, fmt.Errorf("the target container %q does not run", name)
	}
	f.Content = j.content(ctx)
	var err error
	if f.ImageUser, err = j.imageUser(ctx, ref); err != nil {
		return f, err
	}
	if f.FirstID, err = j.firstID(); err != nil {
		return f, err
	}
	f.HostsFile, err = j.hostsFile(f)
	return f, err
}

// sandboxConfig returns the configuration of the pod's sandbox, and what of the pod's wishes for resolving names had
// to be left out, in sentences.
func (j job) sandboxConfig(attempt uint32) (config *runtimeapi.PodSandboxConfig, left []string, err error) {
	f, err := j.sandboxFacts()
	if err != nil {
		return nil, nil, err
	}
	_, left = criconfig.DNS(j.pod, f)
	config, err = criconfig.Sandbox(j.pod, attempt, j.agent.cfg.PodLogDir, f)
	return config, left, err
}

// sandboxFacts returns what the configuration of the sandbox needs to know.
func (j job) sandboxFacts() (criconfig.Facts, error) {
	f := j.facts()
	var err error
	if f.FirstID, err = j.firstID(); err != nil {
		return f, err
	}
	if j.agent.cfg.Simulated || j.pod.GetSpec().GetDnsPolicy() == "None" {
		return f, nil
	}
	if reaches := j.agent.cfg.MachineReachesServices; reaches != nil {
		f.WithoutServices = !reaches()
	}
	f.Resolver, err = resolvconf.Read(resolvconf.System, resolvconf.Upstream)
	return f, err
}

// hostsFile brings the pod's hosts file up to date and returns its path; empty when the pod has none.
func (j job) hostsFile(f criconfig.Facts) (string, error) {
	dir := j.homeDir()
	if dir == "" || len(f.PodIPs) == 0 && !j.pod.GetSpec().GetHostNetwork() {
		return "", nil
	}
	var ofNode []byte
	if j.pod.GetSpec().GetHostNetwork() {
		var err error
		if ofNode, err = os.ReadFile(criconfig.HostsPath); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "etc-hosts")
	return path, rewrite(path, criconfig.Hosts(j.pod, f, ofNode))
}

// rewrite gives a file its text, in place: running containers have this very file. A link that somebody has put there
// is not followed, nor a pipe waited for.
func rewrite(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	have := make([]byte, len(text)+1)
	if n, err := f.ReadAt(have, 0); errors.Is(err, io.EOF) && bytes.Equal(have[:n], text) {
		return f.Close()
	}
	_, err = f.WriteAt(text, 0)
	return errors.Join(err, f.Truncate(int64(len(text))), f.Chmod(0o644), f.Close())
}

// imageUser returns who an image says that its processes are.
func (j job) imageUser(ctx context.Context, ref string) (criconfig.ImageUser, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	got, err := j.agent.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{
		Image: &runtimeapi.ImageSpec{Image: ref},
	})
	if err != nil {
		return criconfig.ImageUser{}, err
	}
	user := criconfig.ImageUser{Name: got.GetImage().GetUsername()}
	if uid := got.GetImage().GetUid(); uid != nil {
		user.UID, user.Name = &uid.Value, ""
	}
	// What has no digest is the machine's own files, which belong to whoever runs the runtime.
	user.Root = user.UID == nil && user.Name == "" && strings.HasPrefix(got.GetImage().GetId(), "sha256:")
	return user, nil
}
