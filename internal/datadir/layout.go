package datadir

// What a cluster keeps in its directory under these names, others find there.
const (
	// Kubeconfig is the file with the administrator's access to the running cluster.
	Kubeconfig = "kubeconfig"
	// Etcd is the directory of the embedded etcd.
	Etcd = "etcd"
)
