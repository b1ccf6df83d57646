package spec

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// File is where the helper looks for a Bundle, below the bundle's directory.
const File = "bundle.json"

// Bundle is what the helper is told about a container. It has the same type.
type Bundle struct {
	Spec *specs.Spec
	// Layers are the directories of the image, the top one first.
	Layers []string
	// Upper and Work take what the container writes. Without them there is one layer, which is the root as it is.
	Upper, Work string
	// UserXattr is set where the layers were unpacked without the right to set trusted attributes.
	UserXattr bool
	// Users is the path of the pod's user namespace, whose ids the layers' files have in the container; empty for the
	// machine's. UIDs and GIDs are its ids.
	Users      string                 `json:",omitempty"`
	UIDs, GIDs []specs.LinuxIDMapping `json:",omitempty"`
	// User is the user as the image or the pod names it.
	User string
	// GroupsOf is the user whose groups in the image's /etc/group the process has beside the group that User names;
	// empty where User names no group, or where the image has named it.
	GroupsOf string `json:",omitempty"`
	// StrictGroups leaves out the groups that the image's /etc/group gives the user.
	StrictGroups bool
	// Rootless is set where there are no rights over cgroups.
	Rootless bool
	// Shm is where the sandbox's shared memory is mounted in the namespace that the shim holds.
	Shm string
	// Shared are the indices of the mounts in Spec that go both ways.
	Shared []int `json:",omitempty"`
	// Parts are the mounts in Spec, by their indices, of whose sources only the paths below them are wanted.
	Parts map[int]string `json:",omitempty"`
	// Volumes are the mounts in Spec that the image declares, by their indices, each with its directory. It is empty, and
	// gets what the image has at the mount's place before the container runs.
	Volumes map[int]string `json:",omitempty"`
	// Images are the mounts in Spec whose sources are the files of images, by their indices.
	Images map[int]Files `json:",omitempty"`
}

// Files are those of an image, to be mounted read-only.
type Files struct {
	// Image is the image as the mount refers to it, and Name what users call it.
	Image, Name string
	// Layers are its directories, the top one first. One alone is what to mount, as it is.
	Layers []string
}

// Image is what an image says of its containers, as in the image specification of OCI.
type Image struct {
	Entrypoint, Cmd, Env []string
	User, WorkingDir     string
	StopSignal           string
	// Volumes are the paths that expect a volume (VOLUME).
	Volumes []string
}

// Input is what a Bundle is made of.
type Input struct {
	Sandbox   *runtimeapi.PodSandboxConfig
	Container *runtimeapi.ContainerConfig
	Image     Image

	// Shim is the pid of the process whose namespaces are the sandbox's, Init the process 1 that the containers of the
	// sandbox share, and Target the process 1 of the container whose processes this one is to see; 0 where there is
	// none.
	Shim, Init, Target int
	// Users is the descriptor, in that process, of the sandbox's user namespace; 0 where there is none.
	Users int
	// OwnNetwork tells whether the sandbox has a network of its own.
	OwnNetwork bool
	// MachineName is the machine's host name, which a sandbox without one has.
	MachineName string
	// Hostname and Resolv are the files for /etc/hostname and /etc/resolv.conf; empty leaves those of the image.
	Hostname, Resolv string

	// CgroupPath is the container's group, as a path inside every hierarchy; empty without rights over cgroups.
	CgroupPath string
	// Unified tells whether the machine has nothing but cgroup2, and the container a group of its own there.
	Unified bool
	// Rootless tells whether all of this happens in a user namespace of a user who is not root.
	Rootless bool
	// Capabilities are those that can be handed on, as bits by their numbers.
	Capabilities uint64
	// AppArmor is the profile to run with; empty for none.
	AppArmor string
}

// SharedMemory is the source of a mount that stands for the sandbox's /dev/shm.
const SharedMemory = "monoplane:shm"

// ImageVolume is the source of a mount that stands for a directory in Bundle.Volumes, and ImageFiles that of one for
// the files in Bundle.Images.
const (
	ImageVolume = "monoplane:volume"
	ImageFiles  = "monoplane:image"
)
