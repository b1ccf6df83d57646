package host

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/cgroup"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

const (
	// defaultPath is the PATH of containers whose environment has none.
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// sandboxVariable and containerVariable tell a process which pod it is in. The first helps to find it again.
	sandboxVariable   = "MONOPLANE_SANDBOX_ID"
	containerVariable = "MONOPLANE_CONTAINER_ID"
	// terminalVariable is the kind of terminal that containers have, unless they say another. It is what other runtimes
	// say too.
	terminalVariable = "TERM=xterm"
	// messageVariable is the path of the file whose content becomes the termination message.
	messageVariable = "MONOPLANE_TERMINATION_LOG"
	// tokenVariable is the directory that is mounted at tokenPath, the token and the certificate of the API. A process
	// finds them there where it can have no view.
	tokenVariable = "MONOPLANE_SERVICE_ACCOUNT"
	// tokenPath is where Kubernetes mounts them. Pods have them without asking.
	tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	// messagePathAnnotation is where kubelets put terminationMessagePath.
	messagePathAnnotation = "io.kubernetes.container.terminationMessagePath"
	defaultMessagePath    = "/dev/termination-log"
	// hostnameAnnotation is where the agent names the fields of a pod that ask for names.
	hostnameAnnotation = "monoplane.dev/hostname-fields"
	// storageAnnotation is on containers: how many bytes one may write before its pod is evicted.
	storageAnnotation = "monoplane.dev/ephemeral-storage-limit"
)

func (r *Runtime) checkSandbox(config *runtimeapi.PodSandboxConfig) error {
	switch m := config.GetMetadata(); {
	case m.GetName() == "" || m.GetUid() == "":
		return badRequest("a sandbox needs metadata with name and uid")
	case r.oci == nil && len(config.GetLinux().GetSysctls()) > 0:
		return badRequest("the host runtime cannot set sysctls: its pods share the node's kernel settings")
	case config.GetLogDirectory() != "" && !filepath.IsAbs(config.GetLogDirectory()):
		return badRequest("log_directory %q is not an absolute path", config.GetLogDirectory())
	}
	if err := r.checkUsers(config); err != nil {
		return err
	}
	return r.checkSysctls(config)
}

// checkContainer refuses what this runtime cannot do and what would matter to whoever asked for it.
func checkContainer(config *runtimeapi.ContainerConfig) error {
	switch {
	case config.GetMetadata().GetName() == "":
		return badRequest("a container needs metadata with a name")
	case len(config.GetCommand()) == 0 && len(config.GetArgs()) == 0:
		return badRequest(`no command: image "host" has no default one`)
	case len(config.GetCDIDevices()) > 0:
		return badRequest("the host runtime does not know CDI devices: its containers see all devices of the node")
	case strings.Contains(config.GetLogPath(), "..") || filepath.IsAbs(config.GetLogPath()):
		return badRequest("log_path %q is not inside the log directory", config.GetLogPath())
	case config.GetWorkingDir() != "" && !filepath.IsAbs(config.GetWorkingDir()):
		return badRequest("working_dir %q is not an absolute path", config.GetWorkingDir())
	}
	if _, err := stopSignal(config.GetStopSignal()); err != nil {
		return err
	}
	if err := security(config, &shimwire.StartRequest{}); err != nil {
		return err
	}
	return checkMounts(config)
}

func messagePath(config *runtimeapi.ContainerConfig) string {
	if p := config.GetAnnotations()[messagePathAnnotation]; p != "" {
		return p
	}
	return defaultMessagePath
}

// unhonoured lists what the pod asks for explicitly and this runtime does not do, though the container runs without
// it.
func (c *container) unhonoured(noView string) []string {
	var out []string
	if fields := c.sb.rec.config.GetAnnotations()[hostnameAnnotation]; fields != "" && noView != "" {
		out = append(out, fields+": not set, so that containers of image "+ImageName+" have the node's host name, and only "+
			"HOSTNAME in their environment is the pod's: "+noView)
	}
	if path := messagePath(c.rec.config); path != defaultMessagePath &&
		(noView != "" || c.messageFile() == c.ownMessageFile()) {
		out = append(out, fmt.Sprintf(
			"terminationMessagePath: nothing is mounted at %q; what a container of image %s writes to the file named by $%s "+
				"is its termination message", path, ImageName, messageVariable))
	}
	if n := len(c.sb.rec.config.GetHostname()); n > maxHostname {
		out = append(out, fmt.Sprintf("hostname: not set, because it has %d characters; Linux takes %d", n, maxHostname))
	}
	return append(out, unappliedSecurity(c.rec.config.GetLinux().GetSecurityContext())...)
}

// messageFile is the file behind MONOPLANE_TERMINATION_LOG: what the agent mounts at the termination message path,
// else one of the container's own.
func (c *container) messageFile() string {
	for _, m := range c.rec.config.GetMounts() {
		if m.GetContainerPath() == messagePath(c.rec.config) {
			return m.GetHostPath()
		}
	}
	return c.ownMessageFile()
}

func (c *container) ownMessageFile() string { return filepath.Join(c.dir, messageName) }

func (c *container) logPath() string {
	dir, file := c.sb.rec.config.GetLogDirectory(), c.rec.config.GetLogPath()
	if dir == "" || file == "" {
		return ""
	}
	return filepath.Join(dir, file)
}

// startRequest says all that the shim needs to know.
func (c *container) startRequest() (*shimwire.StartRequest, error) {
	config := c.rec.config
	sig, _ := stopSignal(config.GetStopSignal()) // Checked when the container was created.
	if c.rec.image != "" {
		return c.bundleRequest(), nil
	}
	req := &shimwire.StartRequest{
		ContainerID: c.id,
		Args:        append(append([]string{}, config.GetCommand()...), config.GetArgs()...),
		Env:         c.environment(),
		Dir:         config.GetWorkingDir(),
		LogPath:     c.logPath(),
		StopSignal:  int64(sig),
		Stdin:       config.GetStdin(),
		Terminal:    config.GetTty(),
		Mounts:      c.mounts(),
		Unified:     c.rec.group.Unified,
		V1:          c.rec.group.V1,
	}
	if req.Dir == "" {
		req.Dir = "/"
	}
	if res := config.GetLinux().GetResources(); res != nil {
		req.SetOOMScoreAdj, req.OOMScoreAdj = true, res.GetOomScoreAdj()
	}
	return req, security(config, req)
}

// environment is what the container asked for, and what every container has. The environment of monoplane itself,
// which may hold secrets, is not passed on.
func (c *container) environment() []string {
	env := []string{
		"PATH=" + defaultPath,
		"HOSTNAME=" + c.sb.rec.config.GetHostname(),
		sandboxVariable + "=" + c.sb.id,
		containerVariable + "=" + c.id,
		messageVariable + "=" + c.messageFile(),
	}
	if c.rec.config.GetTty() {
		env = append(env, terminalVariable)
	}
	for _, m := range c.rec.config.GetMounts() {
		if c.rec.image == "" && filepath.Join("/", m.GetContainerPath()) == tokenPath {
			env = append(env, tokenVariable+"="+m.GetHostPath())
		}
	}
	at := map[string]int{}
	for i, e := range env {
		name, _, _ := strings.Cut(e, "=")
		at[name] = i
	}
	for _, kv := range c.rec.config.GetEnvs() {
		e := kv.GetKey() + "=" + string(kv.GetValue())
		if i, ok := at[kv.GetKey()]; ok {
			env[i] = e
			continue
		}
		at[kv.GetKey()] = len(env)
		env = append(env, e)
	}
	return env
}

// stopSignal maps CRI's numbers, which are not those of the system.
func stopSignal(s runtimeapi.Signal) (unix.Signal, error) {
	name := runtimeapi.Signal_name[int32(s)]
	if s == runtimeapi.Signal_RUNTIME_DEFAULT {
		return unix.SIGTERM, nil
	}
	if n := unix.SignalNum(name); n != 0 {
		return n, nil
	}
	switch name { // Synonyms that x/sys does not know on every architecture.
	case "SIGCLD":
		return unix.SIGCHLD, nil
	case "SIGIOT":
		return unix.SIGABRT, nil
	case "SIGPOLL":
		return unix.SIGIO, nil
	}
	const rtmin, rtmax = 34, 64
	if n, ok := strings.CutPrefix(name, "SIGRTMINPLUS"); ok {
		i, err := strconv.Atoi(n)
		return unix.Signal(rtmin + i), err
	}
	if n, ok := strings.CutPrefix(name, "SIGRTMAXMINUS"); ok {
		i, err := strconv.Atoi(n)
		return unix.Signal(rtmax - i), err
	}
	switch name {
	case "SIGRTMIN":
		return rtmin, nil
	case "SIGRTMAX":
		return rtmax, nil
	}
	return 0, badRequest("unknown stop signal %d", s)
}

// limits reads what is to be enforced by cgroups.
func limits(res *runtimeapi.LinuxContainerResources) (cgroup.Limits, []string) {
	lim := cgroup.Limits{
		MemoryBytes: res.GetMemoryLimitInBytes(), CPUQuota: res.GetCpuQuota(), CPUPeriod: res.GetCpuPeriod(),
		CPUShares: res.GetCpuShares(), CPUs: res.GetCpusetCpus(),
	}
	for _, h := range res.GetHugepageLimits() {
		if n := h.GetLimit(); n > 0 { // Who asks for none is trusted to take none, which saves everybody a cgroup.
			if lim.HugePages == nil {
				lim.HugePages = make(map[string]int64)
			}
			lim.HugePages[h.GetPageSize()] = int64(min(n, math.MaxInt64))
		}
	}
	var warnings []string
	ofMemory := map[string]*string{"memory.min": &lim.MemoryMin, "memory.low": &lim.MemoryLow,
		"memory.high": &lim.MemoryHigh, "memory.swap.max": &lim.SwapMax}
	for _, k := range slices.Sorted(maps.Keys(res.GetUnified())) {
		v := res.GetUnified()[k]
		n, err := strconv.ParseInt(v, 10, 64)
		switch set := ofMemory[k]; {
		case k == "pids.max" && err == nil:
			lim.PIDs = n
		case set != nil && (v == cgroup.Unbounded || err == nil && n >= 0):
			*set = v
		case set != nil:
			warnings = append(warnings, fmt.Sprintf("the cgroup setting %s is not enforced: %q is no value of it", k, v))
		default:
			warnings = append(warnings, fmt.Sprintf("the cgroup setting %s is not supported", k))
		}
	}
	return lim, warnings
}
