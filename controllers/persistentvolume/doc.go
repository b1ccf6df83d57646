// Package persistentvolume is the controller of storage: it binds claims to volumes, has volumes made for claims, sees
// to what becomes of a volume when its claim is gone, and keeps claims and volumes from going while they are used.
//
// A binding has two sides, written in this order, each by compare-and-swap:
//
//	volume: spec.claimRef with the claim's uid -> status Bound -> claim: spec.volumeName, bind-completed -> status Bound
//
// The first write decides. Whatever fails after it is finished when the claim is looked at again; a volume whose claim
// took another one is given back.
//
//	volume:  Available --> Bound --> Released --> deleted, or Retained for the user, or Failed
//	              ^          |
//	              +----------+ the claim took another volume
//	claim:   Pending --> Bound --> Lost: its volume is gone, or another claim has it
//
// What it guarantees: a claim is bound to one volume and a volume to one claim, whatever else writes at the same time;
// nothing is released, lost or deleted because a cache does not know something: the server is asked first. Writes name
// the uid and the revision of what was read. A claim of a class with WaitForFirstConsumer is left to the scheduler,
// which says by claimRef or by the annotation selected-node what it chose.
//
// The provisioner monoplane.dev/local makes a PersistentVolume of type local for a claim whose node was selected,
// which only that node can reach. What it makes is the object. The directory that it names is in that which the Node
// says that its agent has for volumes, unless the class says where (parameter path), and has the volume's name; the
// agent makes it when the first pod mounts it. When the claim is gone, a volume in the agent's own directory is left
// to package localvolume; of one elsewhere, with reclaimPolicy Delete, the object is all that goes. Capacity is not
// enforced.
//
// What it does not do: it makes and deletes no storage of other provisioners, it recycles nothing (the volume becomes
// Failed), and it does not expand volumes.
package persistentvolume
