package admin

import (
	"context"

	"monoplane.dev/client/progress"
)

// Progress asks the server that runs on dataDir why a workload does not get on. The kind is named as kubectl does.
func Progress(ctx context.Context, dataDir, namespace, kind, name string) (*progress.Report, error) {
	c, err := dial(ctx, dataDir)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return progress.Of(ctx, c, namespace, kind, name)
}
