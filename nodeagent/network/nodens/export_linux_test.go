package nodens

// WhyForbiddenBy is WhyForbidden for the settings in a directory.
var WhyForbiddenBy = whyForbidden

// HostLink and HostTable are the names of what a cluster has on the machine.
var (
	HostLink  = hostLink
	HostTable = hostTable
)

// InsideTable is the name of the table by which the node namespace leads pods to host ports.
const InsideTable = insideName
