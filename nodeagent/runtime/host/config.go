package host

import (
	"log/slog"
	"os"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/oci"
	"monoplane.dev/rules/hostimage"
)

// ImageName is the one image that this runtime knows: the machine's own filesystem.
const ImageName = hostimage.Name

// Config is what New takes.
type Config struct {
	// Dir is where the runtime keeps its pods. It is made with mode 0700 when it is missing, and belongs to one
	// Runtime at a time. Required.
	Dir string
	// Logger receives what an operator may want to know. Required.
	Logger *slog.Logger
	// CgroupParent is the cgroup below which pods get theirs, as a path inside each hierarchy ("/monoplane"). Empty
	// means the cgroup that this process itself is in, so that pods stay under the limits it was started with.
	CgroupParent string
	// NoCgroups leaves cgroups alone even where they are writable.
	NoCgroups bool
	// ClaimDir is where the runtimes of this machine tell each other which pods they run: the same for all of them. It
	// is made with mode 0700 and must belong to this user. Empty means /run/monoplane-claims for root and
	// /tmp/monoplane-claims-UID for others.
	ClaimDir string

	// OCI makes the runtime run images too. Nil leaves it with the image "host".
	OCI *OCI

	bounds bounds
	// criu is the program that makes checkpoints, if it is not the one in PATH: a test plays it.
	criu string
}

// OCI is what containers of images need.
type OCI struct {
	// Helper returns the program that makes them (package oci/helper), the same whenever it is asked: not before the
	// first pod, so that a start does not wait for it. The runtime does not close it. Required.
	Helper func() (*os.File, error)
	// Images is the store of images, and Service what CRI is answered of it. Required.
	Images  oci.Images
	Service runtimeapi.ImageServiceServer
	// Network connects the pods that do not use the machine's network. Nil leaves them on that.
	Network oci.Network
}
