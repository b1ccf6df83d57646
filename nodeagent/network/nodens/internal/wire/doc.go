// Package wire is what the server and the helper of the node namespace say to each other. One connection to the
// helper's socket carries one call: a request, an answer, each with the descriptors that belong to it. Calls run
// beside each other.
package wire
