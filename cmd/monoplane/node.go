package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"monoplane.dev/client/admin"
)

func newNodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Let a node fall silent, and come back",
		Long: `Stops and starts the agents of nodes of a running cluster, so that one can see what happens when a node is
lost: its agent falls silent as if its process had died, and its pods go on without it.`,
		Args: cobra.NoArgs,
		RunE: help,
	}
	cmd.AddCommand(
		newNodeActionCommand(nodeAction{
			use:   "stop NAME",
			short: "End the agent of a node as if its process had died",
			long: `Ends the agent of a node as if its process had died. Its heartbeats and its work end at once; its pods go on
without it. After 50 s (--node-monitor-grace-period) the node is NotReady, and later its pods are
evicted, unless all nodes are lost. Stopping the server later ends the pods of this node, too.`,
			act: admin.StopNode, did: "The agent of node %s has ended; its pods go on without it.\n",
			already: "The agent of node %s was stopped already.\n",
		}),
		newNodeActionCommand(nodeAction{
			use:   "start NAME",
			short: "Start the agent of a node that was stopped",
			long: `Starts the agent of a node that was stopped. It adopts the pods that are there, ends those that were
deleted meanwhile, each with its whole grace period, and says that the node is ready.`,
			act: admin.StartNode, did: "Node %s is back.\n", already: "The agent of node %s was there all the time.\n",
		}))
	return cmd
}

// nodeAction is what can be done with the agent of a node.
type nodeAction struct {
	use, short, long string
	// act reports whether there was anything to do; did and already say so, with the node's name.
	act          func(ctx context.Context, dataDir, node string) (bool, error)
	did, already string
}

func newNodeActionCommand(a nodeAction) *cobra.Command {
	cmd := &cobra.Command{Use: a.use, Short: a.short, Long: a.long, Args: cobra.ExactArgs(1)}
	dir := addDataDir(cmd.Flags())
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		changed, err := a.act(ctx, *dir, args[0])
		if err != nil {
			return err
		}
		text := a.already
		if changed {
			text = a.did
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), text, args[0])
		return err
	}
	return cmd
}
