package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/oci"
	"monoplane.dev/rules/sysctls"
)

// addressesName is the file, in the directory of a sandbox, that holds its addresses.
const addressesName = "addresses"

// helper is what shims make containers with; null stands for none.
func (r *Runtime) helper(null *os.File) (*os.File, error) {
	if r.oci == nil {
		return null, nil
	}
	return r.oci.Helper()
}

// ownNetwork tells whether a sandbox gets a network of its own.
func (r *Runtime) ownNetwork(config *runtimeapi.PodSandboxConfig) bool {
	mode := config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork()
	return r.oci != nil && r.oci.Network != nil && mode != runtimeapi.NamespaceMode_NODE
}

// ipcSysctls belong to a namespace of IPC, and all that begins with netSysctls to one of a network.
var ipcSysctls = []string{"kernel.shm_rmid_forced", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.msgmax",
	"kernel.msgmnb", "kernel.msgmni", "kernel.sem", "fs.mqueue."}

const netSysctls = "net."

// checkSysctls refuses settings that would be the machine's.
func (r *Runtime) checkSysctls(config *runtimeapi.PodSandboxConfig) error {
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	for name := range config.GetLinux().GetSysctls() {
		dotted := sysctls.Dotted(name)
		isIPC := slices.ContainsFunc(ipcSysctls, func(s string) bool {
			return dotted == s || strings.HasSuffix(s, ".") && strings.HasPrefix(dotted, s)
		})
		switch {
		case isIPC && options.GetIpc() != runtimeapi.NamespaceMode_NODE:
		case strings.HasPrefix(dotted, netSysctls) && r.ownNetwork(config):
		default:
			return badRequest("the sysctl %q would be the machine's: it belongs to no namespace that the pod has of its own",
				name)
		}
	}
	return nil
}

// namespacesOf says which namespaces a sandbox gets.
func (r *Runtime) namespacesOf(sb *sandbox, init *shimwire.InitRequest) {
	if r.oci == nil {
		return
	}
	config := sb.rec.config.GetLinux()
	options := config.GetSecurityContext().GetNamespaceOptions()
	usersLines(sb.rec.config, init)
	init.OwnIPC = options.GetIpc() != runtimeapi.NamespaceMode_NODE
	init.OwnNetwork = r.ownNetwork(sb.rec.config)
	init.SharePID = options.GetPid() == runtimeapi.NamespaceMode_POD
	for _, name := range slices.Sorted(maps.Keys(config.GetSysctls())) {
		init.Sysctls = append(init.Sysctls, name+"="+config.GetSysctls()[name])
	}
}

// join connects a new sandbox to the network. Its containers find its addresses there.
func (r *Runtime) join(ctx context.Context, sb *sandbox, h *shimwire.HelloReply) error {
	if r.oci == nil {
		return nil
	}
	if h.NoView != "" {
		return errors.New(h.NoView)
	}
	if !r.ownNetwork(sb.rec.config) {
		return nil
	}
	ips, err := r.oci.Network.Attach(ctx, sb.networked())
	if err != nil {
		return errors.Join(fmt.Errorf("the pod's network: %w", err), r.oci.Network.Detach(ctx, sb.id))
	}
	var text []string
	for _, ip := range ips {
		text = append(text, ip.String())
	}
	var e shimwire.Encoder
	e.Strings(1, text)
	if err := shimwire.Append(filepath.Join(sb.dir, addressesName), e.Bytes(), false); err != nil {
		return errors.Join(err, r.oci.Network.Detach(ctx, sb.id))
	}
	sb.ips = text // Nobody else knows the sandbox yet.
	return nil
}

func (sb *sandbox) networked() oci.Sandbox {
	return oci.Sandbox{ID: sb.id, Namespace: fmt.Sprintf("/proc/%d/ns/net", sb.shim.PID), Config: sb.rec.config}
}

// UpdateRuntimeConfig implements CRI: the network is told the ranges of the pods' addresses, if any, and which
// sandboxes there are. spec: NET-1
func (r *Runtime) UpdateRuntimeConfig(
	ctx context.Context, req *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	text := req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	if r.oci == nil || r.oci.Network == nil {
		return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
	}
	var ranges []netip.Prefix
	for one := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ',' }) {
		p, err := netip.ParsePrefix(one)
		if err != nil {
			return nil, badRequest("pod_cidr: %v", err)
		}
		ranges = append(ranges, p.Masked())
	}
	var existing []oci.Sandbox
	var of []*sandbox
	r.mu.RLock()
	for _, sb := range r.sandboxes {
		if sb.shim.PID != 0 && !sb.isGone() && !sb.addressesBack && r.ownNetwork(sb.rec.config) {
			existing, of = append(existing, sb.networked()), append(of, sb)
		}
	}
	r.mu.RUnlock()
	if err := r.oci.Network.Configure(ctx, ranges, existing); err != nil {
		return nil, failed("the pod network: %v", err)
	}
	for _, sb := range of {
		if sb.isGone() { // Meanwhile, and it may have been disconnected before Configure came to it.
			r.disconnect(ctx, sb)
		}
	}
	r.endLost()
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// networkReady is what Status tells of the network.
func (r *Runtime) networkReady(ctx context.Context) *runtimeapi.RuntimeCondition {
	c := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: true}
	if r.oci == nil || r.oci.Network == nil {
		return c // the machine's is always there
	}
	if err := r.oci.Network.Ready(ctx); err != nil {
		c.Status, c.Reason, c.Message = false, "NetworkPluginNotReady", err.Error()
	}
	r.endLost()
	return c
}

// endLost ends the sandboxes whose network is gone for good: they are not ready any more, so that the agent stops
// their containers and makes others. spec: NET-1
func (r *Runtime) endLost() {
	for _, id := range r.oci.Network.Lost() {
		r.mu.Lock()
		sb := r.sandboxes[id]
		isNews := sb != nil && sb.readyLocked()
		if isNews {
			sb.ending = true
			r.publishLocked(sb, id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
		}
		r.mu.Unlock()
		if isNews {
			r.log.Warn("a sandbox has lost its network, and has to be made again", "sandbox", id,
				"uid", sb.rec.config.GetMetadata().GetUid())
		}
	}
}

// loadAddresses reads the addresses of a sandbox, whether it was connected to the network at all, and whether it has
// given them back since.
func loadAddresses(dir string) (out []string, joined, back bool) {
	record, err := shimwire.Last(filepath.Join(dir, addressesName))
	if err != nil || record == nil {
		return nil, false, false
	}
	_ = shimwire.Decode(record, func(f shimwire.Field) {
		switch f.Tag {
		case 1:
			out = append(out, f.Text())
		case 2:
			back = true
		}
	})
	return out, true, back
}

// noteAddressesBack writes down that a sandbox in which nothing runs any more gives its addresses back. The next start
// of the runtime may take a while to see that nothing runs there, and others may have the addresses by then.
func (r *Runtime) noteAddressesBack(sb *sandbox) {
	r.mu.Lock()
	known := sb.addressesBack
	sb.addressesBack = true
	r.mu.Unlock()
	if known {
		return
	}
	var e shimwire.Encoder
	e.Bool(2, true)
	if err := shimwire.Append(filepath.Join(sb.dir, addressesName), e.Bytes(), false); err != nil {
		r.log.Warn("that a stopped sandbox has no addresses any more could not be written down",
			"sandbox", sb.id, "error", err)
	}
}

// leaveDamaged is leave for a sandbox whose containers are known by the names of their directories only.
func (r *Runtime) leaveDamaged(sb *sandbox) error {
	if r.oci == nil {
		return nil
	}
	dirs, err := os.ReadDir(filepath.Join(sb.dir, shim.Containers))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	for _, d := range dirs {
		err = errors.Join(err, r.oci.Images.Release(r.closing, d.Name()))
	}
	if r.oci.Network != nil {
		err = errors.Join(err, r.oci.Network.Detach(r.closing, sb.id))
	}
	return err
}

// disconnect gives back the addresses of a sandbox in which nothing runs any more. That its processes have ended is
// what a pod's deletion waits for, and a network that does not answer does not delay it for long: then the addresses
// are given back when the sandbox is removed, or when the network is made anew.
func (r *Runtime) disconnect(ctx context.Context, sb *sandbox) {
	if !r.ownNetwork(sb.rec.config) || sb.rec.damaged { // discard disconnects it.
		return
	}
	r.noteAddressesBack(sb)
	ctx, cancel := context.WithTimeout(ctx, r.bounds.margin/4)
	defer cancel()
	if err := r.oci.Network.Detach(ctx, sb.id); err != nil {
		r.log.Warn("a stopped sandbox keeps its addresses until it is removed", "sandbox", sb.id, "error", err)
	}
}

// releaseRoots gives back the roots of the containers of a sandbox in which nothing runs any more, so that images that
// only pods use that have ended can be removed: after "monoplane down", all of them. It waits for that as disconnect
// does.
func (r *Runtime) releaseRoots(ctx context.Context, sb *sandbox) {
	if r.oci == nil || sb.rec.damaged { // discard releases them.
		return
	}
	r.mu.RLock()
	list := sb.listLocked()
	r.mu.RUnlock()
	over := make(chan struct{})
	r.start(func() {
		defer close(over)
		for _, c := range list {
			if err := r.releaseRoot(r.closing, c); err != nil {
				r.log.Warn("what a container has written stays until the container is removed", "container", c.id, "error", err)
			}
		}
	})
	patience := time.NewTimer(r.bounds.margin / 4)
	defer patience.Stop()
	select {
	case <-over:
	case <-patience.C:
	case <-ctx.Done():
	case <-r.closing.Done():
	}
}

// leave gives back what a sandbox that is to be removed has of the network, and of the store of images.
func (r *Runtime) leave(ctx context.Context, sb *sandbox) error {
	if r.oci == nil {
		return nil
	}
	r.mu.RLock()
	list := sb.listLocked()
	r.mu.RUnlock()
	for _, c := range list {
		if err := r.releaseRoot(ctx, c); err != nil {
			return err
		}
	}
	if r.oci.Network == nil {
		return nil
	}
	if err := r.oci.Network.Detach(ctx, sb.id); err != nil {
		return failed("the pod's network cannot be given back: %v", err)
	}
	return nil
}
