// Package registry speaks the distribution protocol of OCI registries: it resolves references, reads manifests and
// downloads blobs.
//
// Downloads go on where they broke off, by HTTP ranges where the registry offers them, and are tried again a bounded
// number of times. What is longer than it said it would be is cut off with an error. A registry that sends nothing
// for a while is given up. Plain HTTP is spoken with registries on loopback addresses and those that the
// configuration names, and with nobody else; connections to addresses of this machine are made only if the registry
// itself is there, wherever a redirection or the address of a token service leads.
//
// The caller checks digests: what Blob delivers is what the registry sent.
package registry
