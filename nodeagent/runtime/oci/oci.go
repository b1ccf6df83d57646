// Package oci has what the runtime for images needs from others: a store of images and a network. The runtime itself
// is package host with a Config.OCI: the shims, records, streams and limits of both are the same, and the image name
// "host" goes on meaning the machine's own filesystem.
package oci

import (
	"context"
	"net"
	"net/netip"
	"os"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/images"
)

// Images is a store of images; *images.Store is one.
type Images interface {
	// Image finds an image by a tag, a name with a digest, or an id; images.ErrNotFound if there is none.
	Image(reference string) (images.Image, error)
	// Mountable makes what a container's root is to be mounted of. Asked again it returns what is there.
	Mountable(ctx context.Context, req images.RootRequest) (images.Root, error)
	// Release removes what Mountable has made. It is no error if there is nothing.
	Release(ctx context.Context, id string) error
	// RootUsage returns what a container has written.
	RootUsage(ctx context.Context, id string) (images.Usage, error)
}

// Sandbox is a sandbox with a network namespace of its own.
type Sandbox struct {
	ID string
	// Namespace is the path of its network namespace, whose loopback is up.
	Namespace string
	Config    *runtimeapi.PodSandboxConfig
}

// Network connects sandboxes that have a network namespace of their own.
type Network interface {
	// Configure is told the ranges of the node's pod addresses, at most one of each family and none where others choose
	// them, and which sandboxes there are. It may be told the same again.
	Configure(ctx context.Context, ranges []netip.Prefix, existing []Sandbox) error
	// Ready returns why sandboxes cannot be connected; nil if they can. It is asked every few seconds.
	Ready(ctx context.Context) error
	// Attach gives a sandbox its links and addresses, in which the first is the pod's address. Asked again for the same
	// sandbox it returns what it has.
	Attach(ctx context.Context, s Sandbox) ([]netip.Addr, error)
	// Users returns the user namespace below which a sandbox's own has to be, so that it can be connected; nil as root.
	// The caller closes it.
	Users(ctx context.Context) (*os.File, error)
	// Dial connects to an address as a process of the sandbox would, such as to one of its loopback; network is "tcp" or
	// "udp".
	Dial(ctx context.Context, s Sandbox, network string, address netip.AddrPort) (net.Conn, error)
	// Lost returns the sandboxes that are connected no more and cannot be connected again: they have to be made anew.
	// Detach makes it forget them.
	Lost() []string
	// Detach gives back what Attach has given. It is no error if there is nothing.
	Detach(ctx context.Context, sandboxID string) error
}
