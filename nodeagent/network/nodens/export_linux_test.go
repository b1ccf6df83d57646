package nodens

import (
	"context"
	"os"
	"time"

	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// WhyForbiddenBy is WhyForbidden for the settings in a directory.
var WhyForbiddenBy = whyForbidden

// HostLink and HostTable are the names of what a cluster has on the machine.
var (
	HostLink  = hostLink
	HostTable = hostTable
)

// InsideTable is the name of the table by which the node namespace leads pods to host ports.
const InsideTable = insideName

// Call asks the helper in a directory, which may take patience for usual answers.
func Call(ctx context.Context, dir *os.File, patience time.Duration, request *wire.Request) error {
	_, _, err := (&remote{dir: dir, patience: patience}).call(ctx, request)
	return err
}
