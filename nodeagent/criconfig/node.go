package criconfig

// Node is what holds for all pods of a node. It is shared and does not change once pods are configured by it.
type Node struct {
	// ClusterDomain is the domain of the names of pods and services.
	ClusterDomain string
	// SeccompDir is the directory of the profiles that pods name by seccompProfile.localhostProfile.
	SeccompDir string
	// MaskedPaths are files of this machine's kernel that containers must not see, besides those of every machine.
	MaskedPaths []string
}

// node returns what is known of the node, which is nothing in some tests.
func (f *Facts) node() *Node {
	if f.Node == nil {
		return &Node{}
	}
	return f.Node
}
