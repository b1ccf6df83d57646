package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// Files that belong to the pod rather than to the machine.
const (
	hostsPath    = "/etc/hosts"
	hostnamePath = "/etc/hostname"
	resolvPath   = "/etc/resolv.conf"
)

func checkMounts(config *runtimeapi.ContainerConfig) error {
	for _, m := range config.GetMounts() {
		path := m.GetContainerPath()
		switch {
		case m.GetImage().GetImage() != "":
			return badRequest("image %q cannot be mounted at %q: the container's own image is %q, the machine's root; "+
				"containers of other images can have it, with --runtime oci or --runtime-endpoint", m.GetImage().GetImage(),
				path, ImageName)
		case m.GetHostPath() == "":
			return badRequest("the mount at %q has no host_path", path)
		case m.GetImageSubPath() != "" && !filepath.IsLocal(m.GetImageSubPath()):
			return badRequest("the mount at %q: image_sub_path %q leads out of %q", path, m.GetImageSubPath(), m.GetHostPath())
		case path == "":
			return badRequest("the mount of %q has no container_path", m.GetHostPath())
		case filepath.Join("/", path) == "/":
			return badRequest("the host runtime cannot mount %q at /: its containers have the machine's root",
				m.GetHostPath())
		case len(m.GetUidMappings())+len(m.GetGidMappings()) > 0:
			return badRequest("the host runtime cannot map the owners of %q: its pods have the machine's users",
				m.GetHostPath())
		case m.GetRecursiveReadOnly() && (!m.GetReadonly() || propagation(m) != shimwire.Private):
			return badRequest("the mount at %q: recursive_read_only needs readonly and private propagation", path)
		}
	}
	for _, d := range config.GetDevices() {
		switch {
		case d.GetHostPath() == "" || !filepath.IsAbs(d.GetContainerPath()):
			return badRequest("the device %q at %q needs a host_path, and a container_path that is absolute", d.GetHostPath(),
				d.GetContainerPath())
		case !strings.Contains(d.GetPermissions(), "r") || !strings.Contains(d.GetPermissions(), "w"):
			return badRequest("the host runtime cannot restrict the device %q to %q: its containers may use the devices of "+
				"the node as their user may", d.GetHostPath(), d.GetPermissions())
		}
	}
	return nil
}

func propagation(m *runtimeapi.Mount) shimwire.Propagation {
	switch m.GetPropagation() {
	case runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		return shimwire.FromHost
	case runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		return shimwire.Bidirectional
	}
	return shimwire.Private
}

// mounts lists what the container is to see at paths of its own: what was asked for and, unless that takes their
// place, the files of the pod. It is empty when all of it is where it is anyhow.
func (c *container) mounts() []shimwire.Mount {
	var out []shimwire.Mount
	at := map[string]bool{}
	needed := c.rec.config.GetLinux().GetSecurityContext().GetReadonlyRootfs()
	for _, m := range c.rec.config.GetMounts() {
		path := filepath.Join("/", m.GetContainerPath())
		at[path] = true
		mt := shimwire.Mount{
			HostPath: m.GetHostPath(), SubPath: m.GetImageSubPath(), ContainerPath: path,
			ReadOnly: m.GetReadonly(), Recursive: m.GetRecursiveReadOnly(), Propagation: propagation(m),
			Optional: path == hostsPath || path == tokenPath || path == filepath.Join("/", messagePath(c.rec.config)),
		}
		out = append(out, mt)
		needed = needed || mt.ReadOnly || mt.Propagation != shimwire.Private || mt.SubPath != "" ||
			filepath.Clean(m.GetHostPath()) != path
	}
	for _, d := range c.rec.config.GetDevices() {
		path := filepath.Clean(d.GetContainerPath())
		at[path] = true
		out = append(out, shimwire.Mount{HostPath: d.GetHostPath(), ContainerPath: path})
		needed = needed || filepath.Clean(d.GetHostPath()) != path
	}
	for _, own := range [][2]string{{hostnamePath, nameName}, {resolvPath, resolvName}} {
		path, file := own[0], filepath.Join(c.sb.dir, own[1])
		if _, err := os.Lstat(file); err != nil || at[path] {
			continue
		}
		out = append(out, shimwire.Mount{HostPath: file, ContainerPath: path, Optional: true})
		needed = true
	}
	if !needed {
		return nil
	}
	return out
}

// makeHostPaths makes directories that are to be mounted and are missing, as other container runtimes do. Where that
// fails the start does, with the mount that it fails for.
func makeHostPaths(config *runtimeapi.ContainerConfig) {
	for _, m := range config.GetMounts() {
		if m.GetHostPath() == "" {
			continue // an image
		}
		if _, err := os.Stat(m.GetHostPath()); errors.Is(err, os.ErrNotExist) {
			_ = os.MkdirAll(m.GetHostPath(), 0o755)
		}
	}
}

// ownHostname is the name that the pod has instead of the machine's; empty when it has that.
func ownHostname(config *runtimeapi.PodSandboxConfig) string {
	name := config.GetHostname()
	if machine, err := os.Hostname(); err == nil && machine == name || len(name) > maxHostname {
		return ""
	}
	return name
}

// maxHostname is how long a host name may be on Linux.
const maxHostname = 64

// writeFiles writes the files that a sandbox has instead of the machine's.
func writeFiles(dir string, config *runtimeapi.PodSandboxConfig) error {
	files := map[string]string{resolvName: resolvConf(config.GetDnsConfig())}
	if name := ownHostname(config); name != "" {
		files[nameName] = name + "\n"
	}
	for name, content := range files {
		if content == "" {
			continue
		}
		if err := writeShared(filepath.Join(dir, name), []byte(content)); err != nil {
			return err
		}
	}
	return nil
}

// writeShared writes a file that users other than this one are to read, whatever the umask.
func writeShared(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return err
	}
	return os.Chmod(path, 0o644)
}

// resolvConf is empty when the machine's configuration is to be used.
func resolvConf(dns *runtimeapi.DNSConfig) string {
	var b strings.Builder
	if len(dns.GetSearches()) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(dns.GetSearches(), " "))
	}
	for _, s := range dns.GetServers() {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if len(dns.GetOptions()) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(dns.GetOptions(), " "))
	}
	return b.String()
}
