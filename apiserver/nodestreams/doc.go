// Package nodestreams is the server's side of the NodeStreams service: it carries what the API server asks
// of a node's agent (container logs, what is used, the documents that kubelets serve) over streams that the agent
// opened, so that no node needs an open port. The mechanism and its guarantees are those of package calls.
//
// Guarantees besides: only the identity system:node:NAME listens and answers for NAME, and only that of the machine
// for which the Node is registered (NODE-7); when another machine takes the name over, the first one is asked nothing
// more.
//
// The Broker does not authorize the user who asks, and knows nothing of pods.
package nodestreams
