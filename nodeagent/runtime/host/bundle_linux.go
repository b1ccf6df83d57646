package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

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

// imageFor finds the image of a container and returns its id, and a reference for those who look which one it is;
// empty stands for the machine's own filesystem.
func (r *Runtime) imageFor(config *runtimeapi.ContainerConfig) (id, reference string, err error) {
	name := imageOf(config.GetImage())
	switch {
	case name == ImageName:
		return "", "", nil
	case r.oci == nil:
		return "", "", noSuchImage(name)
	case config.GetMetadata().GetName() == "":
		return "", "", badRequest("a container needs metadata with a name")
	}
	image, err := r.oci.Images.Image(config.GetImage().GetImage())
	if err != nil {
		return "", "", imageError(err)
	}
	return image.ID, image.Reference(cmp.Or(config.GetImage().GetUserSpecifiedImage(), name)), nil
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
	b, err := r.bundleOf(c, image)
	if err == nil {
		_, err = r.mountedImages(b)
	}
	return err
}

// mountedImages returns the ids of the images that a container mounts, in the order of its mounts.
func (r *Runtime) mountedImages(b *spec.Bundle) (ids []string, err error) {
	for _, i := range slices.Sorted(maps.Keys(b.Images)) {
		name := b.Images[i].Image
		if imageOf(&runtimeapi.ImageSpec{Image: name}) == ImageName {
			return nil, badRequest("the mount at %q: image %q is this machine itself, of which host_path mounts parts",
				b.Spec.Mounts[i].Destination, name)
		}
		image, err := r.oci.Images.Image(name)
		if err != nil {
			return nil, imageError(fmt.Errorf("the mount at %q: %w", b.Spec.Mounts[i].Destination, err))
		}
		ids = append(ids, image.ID)
	}
	return ids, nil
}

// bundleRequest is what the shim is told.
func (c *container) bundleRequest() *shimwire.StartRequest {
	config := c.rec.config
	sig, _ := stopSignal(config.GetStopSignal()) // Checked when the container was created.
	req := &shimwire.StartRequest{
		ContainerID: c.id, LogPath: c.logPath(), StopSignal: int64(sig), Stdin: config.GetStdin(),
		Terminal: config.GetTty(), Unified: c.rec.group.Unified, V1: c.rec.group.V1, Bundle: c.bundleDir(),
		Joins: !isRoot(),
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
			WorkingDir: run.WorkingDir, StopSignal: run.StopSignal, Volumes: run.Volumes},
		Shim: c.sb.shim.PID, Init: c.sb.init, Target: r.targetLocked(c), Users: c.sb.users,
		OwnNetwork: r.ownNetwork(c.sb.rec.config),
		Rootless:   !isRoot(), CgroupPath: r.cgroups.PathOf(c.sb.rec.group, c.id),
	}
	in.Unified = r.cgroups.IsUnified() && (isRoot() || in.CgroupPath != "")
	r.mu.RUnlock()
	in.MachineName, _ = os.Hostname() // Without it there is no HOSTNAME.
	for _, f := range []struct {
		to         *string
		own, there string
	}{{&in.Hostname, nameName, hostnamePath}, {&in.Resolv, resolvName, resolvPath}} {
		if path := filepath.Join(c.sb.dir, f.own); exists(path) {
			*f.to = path
		} else if exists(f.there) {
			*f.to = filepath.Join(c.bundleDir(), f.own) // See copyMachineFiles.
		}
	}
	in.Capabilities = ^uint64(0) // In a user namespace.
	if isRoot() && in.Users == 0 {
		in.Capabilities = ownCapabilities()
	}
	var profile shimwire.StartRequest
	if err := profiled(c.rec.config.GetLinux().GetSecurityContext(), &profile); err != nil {
		return nil, err
	}
	in.AppArmor = profile.AppArmor
	if in.AppArmor == "" {
		in.AppArmor, _ = r.defaultProfileOf(c) // Why there is none is said when the container is made.
	}
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
	mounted, err := r.mountedImages(b)
	if err != nil {
		return err
	}
	request := images.RootRequest{ID: c.id, Image: c.rec.image, Mounts: mounted, Volumes: len(b.Volumes)}
	// What is no number is no limit that the agent has set.
	request.Most, _ = strconv.ParseInt(c.rec.config.GetAnnotations()[storageAnnotation], 10, 64)
	for _, m := range b.UIDs {
		request.UIDs = append(request.UIDs, images.IDMap{Container: m.ContainerID, Host: m.HostID, Size: m.Size})
	}
	for _, m := range b.GIDs {
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
	for n, i := range slices.Sorted(maps.Keys(b.Volumes)) {
		b.Volumes[i] = root.Volumes[n]
	}
	for n, i := range slices.Sorted(maps.Keys(b.Images)) {
		from := root.Mounts[n]
		files := b.Images[i]
		files.Layers = from.Lower
		if from.Copied != "" {
			files.Layers = []string{from.Copied}
		}
		b.Images[i] = files
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
	if err := c.copyMachineFiles(); err != nil {
		return failed("the container cannot have the machine's files: %v", err)
	}
	return nil
}

// copyMachineFiles gives a container copies of those files of the machine for which its sandbox has none of its own:
// root in a container may write to them.
func (c *container) copyMachineFiles() error {
	for _, f := range [][2]string{{nameName, hostnamePath}, {resolvName, resolvPath}} {
		if exists(filepath.Join(c.sb.dir, f[0])) {
			continue
		}
		text, err := os.ReadFile(f[1])
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = writeShared(filepath.Join(c.bundleDir(), f[0]), text)
		}
		if err != nil {
			return err
		}
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
