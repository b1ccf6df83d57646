// Package conntrack reads the connection tracking of a network namespace, and has it forget flows.
//
// It has no way of its own into the namespace: callers bring the socket.
package conntrack
