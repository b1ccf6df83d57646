package network

import (
	"net/netip"

	"monoplane.dev/client"
)

// Node is what the network of a node is told of it and of its cluster, to carry traffic to Services.
type Node struct {
	// Name is the node's.
	Name string
	// Client acts as system:controller:nodenetwork.
	Client *client.Client
	// ClusterDomain is the domain of the cluster's names.
	ClusterDomain string
	// DNS is the cluster IP at which pods find names.
	DNS netip.Addr
	// API is where the machine reaches the API server; not valid where it has no listener.
	API netip.AddrPort
	// Reached is told where pods reach the API server in their network, an address of each family, each time that it is
	// served there anew. It is not nil.
	Reached func(api []netip.AddrPort)
	// Warn tells whoever looks at the node what its pods cannot do, by an event; nil where nobody is to be told.
	Warn func(reason, note string)
}
