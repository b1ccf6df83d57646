package host

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/images"
	"monoplane.dev/nodeagent/runtime/host/cgroup"
	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/oci/spec"
)

// bundleName is the directory, below that of a container, in which it is described to the helper that makes it.
const bundleName = "bundle"

// ociParent is the cgroup below which the pods of root's images are. Containers join it in every hierarchy of cgroup
// v1, where this process itself may be in a different group of each.
const ociParent = "/monoplane"

// discover finds the cgroups that pods get theirs below.
func (r *Runtime) discover(parent string) *cgroup.Manager {
	if r.oci == nil || !isRoot() {
		return cgroup.Discover(parent)
	}
	if parent == "" {
		parent = ociParent
	}
	return cgroup.DiscoverAll(parent)
}

// name is what the runtime calls itself.
func (r *Runtime) name() string {
	if r.oci != nil {
		return "oci"
	}
	return "host"
}

// imageFor finds the image of a container and returns its id; empty stands for the machine's own filesystem.
func (r *Runtime) imageFor(config *runtimeapi.ContainerConfig) (string, error) {
	name := imageOf(config.GetImage())
	switch {
	case name == ImageName:
		return "", nil
	case r.oci == nil:
		return "", noSuchImage(name)
	case config.GetMetadata().GetName() == "":
		return "", badRequest("a container needs metadata with a name")
	}
	image, err := r.oci.Images.Image(config.GetImage().GetImage())
	if err != nil {
		return "", imageError(err)
	}
	return image.ID, nil
}

// checkBundle refuses a container of an image that cannot be made as it is asked for.
func (r *Runtime) checkBundle(c *container) error {
	if c.rec.image == "" {
		return nil
	}
	config := c.rec.config
	if len(config.GetCDIDevices()) > 0 {
		return badRequest("CDI devices are not known to this runtime")
	}
	if _, err := stopSignal(config.GetStopSignal()); err != nil {
		return err
	}
	if p := config.GetLogPath(); p != "" && !filepath.IsLocal(p) {
		return badRequest("log_path %q is not inside the log directory", p)
	}
	image, err := r.oci.Images.Image(c.rec.image)
	if err != nil {
		return imageError(err)
	}
	_, err = r.bundleOf(c, image)
	return err
}

// bundleRequest is what the shim is told.
func (c *container) bundleRequest() *shimwire.StartRequest {
	config := c.rec.config
	sig, _ := stopSignal(config.GetStopSignal()) // Checked when the container was created.
	req := &shimwire.StartRequest{
		ContainerID: c.id, LogPath: c.logPath(), StopSignal: int64(sig), Stdin: config.GetStdin(),
		Terminal: config.GetTty(), Unified: c.rec.group.Unified, V1: c.rec.group.V1, Bundle: c.bundleDir(),
	}
	if res := config.GetLinux().GetResources(); res != nil {
		req.SetOOMScoreAdj, req.OOMScoreAdj = true, res.GetOomScoreAdj()
	}
	return req
}

func (c *container) bundleDir() string { return filepath.Join(c.dir, bundleName) }

// bundleOf describes a container of an image, but for its layers.
func (r *Runtime) bundleOf(c *container, image images.Image) (*spec.Bundle, error) {
	run := image.Config
	r.mu.RLock()
	in := spec.Input{
		Sandbox: c.sb.rec.config, Container: c.rec.config,
		Image: spec.Image{Entrypoint: run.Entrypoint, Cmd: run.Cmd, Env: run.Env, User: run.User,
			WorkingDir: run.WorkingDir, StopSignal: run.StopSignal},
		Shim: c.sb.shim.PID, Init: c.sb.init, Target: r.targetLocked(c), OwnNetwork: r.ownNetwork(c.sb.rec.config),
		Rootless: !isRoot(), Unified: r.cgroups.IsUnified(),
	}
	r.mu.RUnlock()
	for _, f := range []struct {
		to         *string
		own, there string
	}{{&in.Hostname, nameName, hostnamePath}, {&in.Resolv, resolvName, resolvPath}} {
		for _, path := range []string{filepath.Join(c.sb.dir, f.own), f.there} {
			if _, err := os.Stat(path); err == nil && *f.to == "" {
				*f.to = path
			}
		}
	}
	if isRoot() {
		in.Capabilities = ownCapabilities()
		in.CgroupPath = r.cgroups.PathOf(c.sb.rec.group, c.id)
	} else {
		in.Capabilities = ^uint64(0)
	}
	var profile shimwire.StartRequest
	if err := profiled(c.rec.config.GetLinux().GetSecurityContext(), &profile); err != nil {
		return nil, err
	}
	in.AppArmor = profile.AppArmor
	b, err := spec.Container(in)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	b.Shm = filepath.Join(c.sb.dir, shim.Shm)
	return b, nil
}

// targetLocked is the process whose namespace of processes a container is to join, if any.
func (r *Runtime) targetLocked(c *container) int {
	id := c.rec.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetTargetId()
	if target := c.sb.containers[id]; target != nil && target.state.Phase < shimwire.Ending {
		return int(target.state.PID)
	}
	return 0
}

// writeBundle describes a container of an image to the helper, with its layers. What was written before is replaced.
func (r *Runtime) writeBundle(ctx context.Context, c *container) error {
	if c.rec.image == "" {
		return nil
	}
	image, err := r.oci.Images.Image(c.rec.image)
	if err != nil {
		return imageError(err)
	}
	b, err := r.bundleOf(c, image)
	if err != nil {
		return err
	}
	request := images.RootRequest{ID: c.id, Image: c.rec.image}
	for _, m := range b.Spec.Linux.UIDMappings {
		request.UIDs = append(request.UIDs, images.IDMap{Container: m.ContainerID, Host: m.HostID, Size: m.Size})
	}
	for _, m := range b.Spec.Linux.GIDMappings {
		request.GIDs = append(request.GIDs, images.IDMap{Container: m.ContainerID, Host: m.HostID, Size: m.Size})
	}
	root, err := r.oci.Images.Mountable(ctx, request)
	if err != nil {
		return imageError(err)
	}
	b.Layers, b.Upper, b.Work = root.Lower, root.Upper, root.Work
	if root.Copied != "" {
		b.Layers, b.Upper, b.Work = []string{root.Copied}, "", ""
	}
	for _, o := range root.Options {
		b.UserXattr = b.UserXattr || o == "userxattr"
	}
	text, err := json.Marshal(b)
	if err != nil {
		return failed("%v", err)
	}
	err = os.Mkdir(c.bundleDir(), 0o700)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return failed("the container cannot be described: %v", err)
	}
	if err := os.WriteFile(filepath.Join(c.bundleDir(), spec.File), text, 0o600); err != nil {
		return failed("the container cannot be described: %v", err)
	}
	return nil
}

// releaseRoot gives back the directories of a container that has ended, and of which nothing is mounted therefore.
// Those of a copied sandbox are the original's, which may run.
func (r *Runtime) releaseRoot(ctx context.Context, c *container) error {
	if c.rec.image == "" || r.oci == nil || c.sb.rec.copied {
		return nil
	}
	if err := r.oci.Images.Release(ctx, c.id); err != nil {
		return failed("the container's root cannot be removed: %v", err)
	}
	return nil
}
