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
	// CNI has pods connected by plugins instead, as root only. Nil gives them the network of this package.
	CNI *CNI
}

// CNI says where plugins of the Container Network Interface are.
type CNI struct {
	// ConfDir is where their configuration is: its first file .conflist, .conf or .json, by name. While there is none,
	// the node is not ready.
	ConfDir string
	// BinDirs are where the plugins are; the first that has one counts.
	BinDirs []string
}
