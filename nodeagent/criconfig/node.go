package criconfig

// Node is what holds for all pods of a node. It is shared and does not change once pods are configured by it.
type Node struct {
	// ClusterDomain is the domain of the names of pods and services.
	ClusterDomain string
	// ClusterDNS are the addresses of the cluster's resolver; empty where the runtime has no network in which it could
	// be reached.
	ClusterDNS []string
	// SeccompDir is the directory of the profiles that pods name by seccompProfile.localhostProfile.
	SeccompDir string
	// SeccompDefault makes RuntimeDefault the profile of containers that name none.
	SeccompDefault bool
	// MaskedPaths are files of this machine's kernel that containers must not see, besides those of every machine.
	MaskedPaths []string
	// Memory is how many bytes of memory the machine has, AllocatableMemory how many pods may have together.
	Memory, AllocatableMemory int64
	// HugePages are the sizes of huge pages that the machine has, in the kernel's words, such as "2MB".
	HugePages []string
	// CgroupV2 says that the machine has the unified hierarchy of cgroups alone.
	CgroupV2 bool
	// Swap says that the machine has swap space, and that its cgroups can keep containers off it.
	Swap bool
	// MemoryQoS asks for memory to be reserved and throttled by class, where cgroups can (QOS-3).
	MemoryQoS bool
	// PodMaxPIDs is how many processes and threads a pod may have; any number when not positive.
	PodMaxPIDs int64
	// PageSize is the size of a page of memory.
	PageSize int64
}

// node returns what is known of the node, which is nothing in some tests.
func (f *Facts) node() *Node {
	if f.Node == nil {
		return &Node{}
	}
	return f.Node
}
