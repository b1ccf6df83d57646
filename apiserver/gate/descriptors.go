package gate

import "monoplane.dev/internal/descriptors"

// maxConnections is how many connections a listener has at most, however many descriptors there are.
const maxConnections = 4096

// ProcessLimits gives a listener its share of the descriptors that the process may have. It fails where those are too
// few for a cluster.
func ProcessLimits() (Limits, error) {
	if err := descriptors.Enough(); err != nil {
		return Limits{}, err
	}
	return Limits{MaxConnections: min(maxConnections, descriptors.Listener.Count())}, nil
}
