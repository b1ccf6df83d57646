// Package storage is what PersistentVolumes, PersistentVolumeClaims and StorageClasses say to those who bind them: the
// annotations that the binding controller and the scheduler agree on, which class an object belongs to, and whether a
// volume can be bound to a claim. The controller and the scheduler must answer these alike, or they would undo each
// other's work.
//
// What it guarantees: its functions look at their arguments and nothing else, and change nothing.
package storage

// The annotations, with Kubernetes' names. But for those that name something the values do not matter.
const (
	// BindCompleted is on a claim whose binding has been carried out: what follows can only lose the volume.
	BindCompleted = "pv.kubernetes.io/bind-completed"
	// BoundByController is on a volume or claim whose half of the binding no user has made.
	BoundByController = "pv.kubernetes.io/bound-by-controller"
	// SelectedNode is the node that the scheduler chose for the pod that uses the claim: the volume is to be made there.
	SelectedNode = "volume.kubernetes.io/selected-node"
	// ProvisionedBy names who made the volume.
	ProvisionedBy = "pv.kubernetes.io/provisioned-by"
	// Provisioner names who is to make a volume for the claim; BetaProvisioner is its old name, which provisioners still
	// read.
	Provisioner     = "volume.kubernetes.io/storage-provisioner"
	BetaProvisioner = "volume.beta.kubernetes.io/storage-provisioner"
	// MadeOn is on a volume of LocalProvisioner: the node in whose own directory of volumes it is. DirectoryOfVolumes is
	// that directory, on a Node whose agent has one.
	MadeOn             = "monoplane.dev/node"
	DirectoryOfVolumes = "monoplane.dev/volumes-directory"
	// BetaClass is the old way to name the class, and wins over the field.
	BetaClass = "volume.beta.kubernetes.io/storage-class"
	// DefaultClass, or its old name, is "true" on the class of claims that name none.
	DefaultClass     = "storageclass.kubernetes.io/is-default-class"
	BetaDefaultClass = "storageclass.beta.kubernetes.io/is-default-class"
)

const (
	// NoProvisioner is the provisioner of classes whose volumes nobody makes on demand.
	NoProvisioner = "kubernetes.io/no-provisioner"
	// LocalProvisioner is the provisioner of classes whose volumes are directories of nodes, which their agents make.
	LocalProvisioner = "monoplane.dev/local"
	// WaitForFirstConsumer is the binding mode of classes whose claims wait for a pod that uses them.
	WaitForFirstConsumer = "WaitForFirstConsumer"
	// OncePod is the access mode of volumes that one pod uses at a time.
	OncePod = "ReadWriteOncePod"
	// HostnameLabel is the label of nodes that local volumes are tied to.
	HostnameLabel = "kubernetes.io/hostname"
)

// The finalizers that the server puts on claims and volumes, and that keep them while they are used. The controller
// takes them away.
const (
	ClaimProtection  = "kubernetes.io/pvc-protection"
	VolumeProtection = "kubernetes.io/pv-protection"
)
