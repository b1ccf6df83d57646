// Package nft has what the packages share that keep tables of nftables in the node namespace: expressions that read
// addresses and ports of packets, elements of sets of ranges, transactions, and what is read back from the kernel.
//
// It keeps no table itself, and has no way of its own into the namespace.
package nft
