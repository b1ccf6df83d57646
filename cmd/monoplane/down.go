package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"monoplane.dev/client/admin"
)

func newDownCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the pods and the server of a data directory",
		Long: `Stops a running cluster as Ctrl-C in its terminal would: the pods, each with its own grace period,
then the server. It returns when the server's process has ended.

The stop, once begun, goes on without this command: Ctrl-C ends the waiting only. Running it again waits for the
same stop, and with --leave-pods it gives up the waiting for pods: the server ends, and the next start
adopts those that still run.

Pods and their network outlive a server that was killed, of which there is nothing to stop: start it again first.`,
		Args: cobra.NoArgs,
	}
	dir := addDataDir(cmd.Flags())
	leave := cmd.Flags().Bool("leave-pods", false, "stop the server only; the next start adopts the pods")
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		progress := stopping{w: cmd.OutOrStdout(), now: time.Now}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err := admin.Stop(ctx, *dir, *leave, progress.show)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "Monoplane has stopped.")
		return err
	}
	return cmd
}
