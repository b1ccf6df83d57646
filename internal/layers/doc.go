// Package layers holds the test of what the parts of the tree may link, directly or by way of others. The linter sees
// only what a package imports itself; what it links decides how long it takes to build and to test.
//
// It guarantees that messages, codecs and rules link no gRPC and no HTTP, and that of the server only what runs etcd
// links etcd's server. There is nothing to use here.
package layers
