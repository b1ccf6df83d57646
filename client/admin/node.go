package admin

import (
	"context"
	"errors"

	"google.golang.org/grpc/status"

	adminv1rpc "monoplane.dev/api/admin/v1/rpc"
)

// StopNode has the server that runs on dataDir end the agent of a node as if its process had died: it falls silent at
// once, and its pods go on. It reports whether the agent worked until then.
func StopNode(ctx context.Context, dataDir, node string) (stopped bool, err error) {
	err = call(ctx, dataDir, func(c adminv1rpc.AdminClient) error {
		answer, err := c.StopNode(ctx, &adminv1rpc.StopNodeRequest{Name: node})
		stopped = answer.GetStopped()
		return err
	})
	return stopped, err
}

// StartNode has the server start the agent of a node that StopNode ended, and returns when the node is back. It
// reports whether the agent was stopped until then.
func StartNode(ctx context.Context, dataDir, node string) (started bool, err error) {
	err = call(ctx, dataDir, func(c adminv1rpc.AdminClient) error {
		answer, err := c.StartNode(ctx, &adminv1rpc.StartNodeRequest{Name: node})
		started = answer.GetStarted()
		return err
	})
	return started, err
}

// call makes one call of the server that runs on dataDir. What the server answers is the error's whole text.
func call(ctx context.Context, dataDir string, f func(adminv1rpc.AdminClient) error) error {
	c, err := dial(ctx, dataDir)
	if err != nil {
		return err
	}
	defer c.Close()
	err = f(adminv1rpc.NewAdminClient(c.Conn()))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return errors.New(status.Convert(err).Message())
	}
	return nil
}
