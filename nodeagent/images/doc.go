// Package images keeps the images of a node's containers: it pulls them from registries, loads and saves them as
// archives, unpacks their layers, and makes the directories of which a container's root file system is mounted.
//
// A store is a directory. Several processes of one user may use it at the same time: each change takes a kernel lock
// for the moment of the change, and pulls of the same image, by whomever, share their downloads and layers. Another
// user's store is refused, as is one that was written with other rights (see Flavour).
//
//	DIR/format               what wrote the directory: "monoplane images 1 trusted"
//	DIR/boot                 the boot of the machine for which the rest has been checked
//	DIR/lock                 its lock is held while index, leases or roots change
//	DIR/index.json           the images and their names
//	DIR/blobs/HEX            manifests, configurations and compressed layers, named by their SHA-256
//	DIR/layers/HEX/fs        the unpacked layer whose uncompressed archive has this SHA-256 (its diff id)
//	DIR/layers/HEX/info.json its size, and the directories that it has no entries for
//	DIR/layers/HEX/opaque    there for a layer that hides all that is below it
//	DIR/tops/HEX/fs          what belongs above the layers of the image with this id: the directories that take
//	                         their attributes from lower layers (unpack.Top); missing if the image has none. It is
//	                         made for the image's first container, and anew after a boot
//	DIR/roots/ID             what belongs to one container: root.json; upper and work, or copy; volumes; mounts,
//	                         the copies of other images that it mounts
//	DIR/partial/HEX          a download that has begun, for whoever goes on with it
//	DIR/tmp/NAME             of one process: what it is making or removing, and leases, which name what its running
//	                         pulls need; its file "lock" is locked as long as the process has the store open
//
// Guarantees:
//   - Nothing is used before its SHA-256 has been found right: neither manifest, configuration and compressed layer
//     nor the uncompressed layer, whose directory appears only after that.
//   - A process may be killed at any moment, and the machine may lose its power: what is half done is never seen, and
//     removed by the next Open. Layers and blobs are written to the disk behind a pull, not in its way; those of which
//     it is not known after a boot that they reached the disk are checked, or unpacked again.
//   - No entry of a layer reaches outside the layer's directory, and no layer or download is larger than it said, or
//     than the limits.
//   - An image that a container's root is made of, or that it mounts, is not removed.
//
// Layers are unpacked independently of each other, in parallel, to the form that overlayfs stacks: a removed file is a
// character device 0:0, a directory that hides what is below it has an extended attribute. What a layer does not know
// of a directory, because it has no entry for it, the image's own directory has, above those of the layers. Root file
// systems are stacked from them by whoever mounts; where overlayfs cannot be had, Mountable copies.
package images
