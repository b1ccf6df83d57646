package ocinode

import (
	"net/netip"

	"monoplane.dev/nodeagent/images"
)

// Config is what New takes.
type Config struct {
	// Images says where the images are, and how they are got. Its Log is replaced by the cluster's.
	Images images.Config
	// ServiceRanges are what the cluster IPs of Services come from.
	ServiceRanges []netip.Prefix
	// HostNetwork leaves all pods on the machine's network.
	HostNetwork bool
}
