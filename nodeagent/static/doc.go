// Package static finds the pods that an agent runs without being told by a server: static pods, from the manifests in
// a directory of the machine and from a URL. It also decides what is to be done about their mirrors, which show them
// in the API. spec: STATIC-1
//
//	directory ─┐                                    ┌─► pods, with name, uid and annotations of static pods
//	           ├─► documents ─► pods ─► Complete ─► ┤
//	URL ───────┘   (YAML, JSON,                     └─► what is wrong with the others
//	                Pod, PodList, List)
//
// Guarantees: a pod's name ends with the node's name, and its uid is a hash of its manifest and of where that is, so
// that an edit makes another pod; a manifest that refers to objects of the API is refused; while a file or the URL
// cannot be read, or what is in it is not valid, the pods that it gave last go on. Hidden files, and directories in
// the directory, are no manifests.
//
// It starts nothing and speaks to no server but the one of the URL.
package static
