package validation

import (
	"path"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	corev1 "monoplane.dev/api/core/v1"
)

// HostPath checks a directory or file of the node.
func (f *Faults) HostPath(p *Path, h *corev1.HostPathVolumeSource) {
	if h.GetPath() == "" {
		f.Required(p.Child("path"), "")
		return
	}
	f.NoBacksteps(p.Child("path"), h.GetPath())
	f.OneOf(p.Child("type"), h.GetType(), "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate",
		"File", "FileOrCreate", "Socket")
}

// NFS checks an export of a server.
func (f *Faults) NFS(p *Path, n *corev1.NFSVolumeSource) {
	if n.GetServer() == "" {
		f.Required(p.Child("server"), "")
	}
	if n.GetPath() == "" {
		f.Required(p.Child("path"), "")
	}
	if !path.IsAbs(n.GetPath()) {
		f.Invalid(p.Child("path"), n.GetPath(), "must be an absolute path")
	}
}

const maxDriverName = 63

// DriverName checks the name of a CSI driver.
func (f *Faults) DriverName(p *Path, name string) {
	if name == "" {
		f.Required(p, "")
		return
	}
	if len(name) > maxDriverName {
		f.TooLong(p, maxDriverName)
	}
	f.Invalid(p, name, WrongSubdomain(strings.ToLower(name))...)
}

// Inside checks that a path stays below the directory that it is relative to.
func (f *Faults) Inside(p *Path, name string) {
	if path.IsAbs(name) {
		f.Invalid(p, name, "must be a relative path")
	}
	f.NoBacksteps(p, name)
}

// NoBacksteps checks that a path never goes up.
func (f *Faults) NoBacksteps(p *Path, name string) {
	if Backsteps(name) {
		f.Invalid(p, name, "must not contain '..'")
	}
}

// Backsteps says whether a part of the path is "..".
func Backsteps(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

// SourcesSet returns the names of the sources that are set, in the order that is given, in which Kubernetes looks at
// them.
func SourcesSet(s proto.Message, order ...string) []string {
	var names []string
	s.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		names = append(names, string(fd.Name()))
		return true
	})
	if len(names) < 2 {
		return names
	}
	ordered := make([]string, 0, len(names))
	for _, n := range order {
		if slices.Contains(names, n) {
			ordered = append(ordered, n)
		}
	}
	return ordered
}
