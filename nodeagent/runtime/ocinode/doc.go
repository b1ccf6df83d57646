// Package ocinode is the runtime of a node that runs images without a container engine: containers on the shims of
// package host, a store of images that the clusters of a user share, and a network in which each pod has an address,
// Services are reached by their addresses, names are answered and NetworkPolicies enforced.
//
// A program that embeds Monoplane chooses it so:
//
//	monoplane.Config{Runtime: ocinode.New(ocinode.Config{Images: images.Config{Dir: dir}})}
//
// As root and without, it is the same. Check tells whether this machine can run images at all.
package ocinode
