package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"monoplane.dev"
)

func newDownCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the pods and the server of a data directory",
		Long: `Stops a running cluster as Ctrl-C in its terminal would: the pods, each with its own grace period,
then the server. It returns when the server's process has ended.`,
		Args: cobra.NoArgs,
	}
	dir := addDataDir(cmd.Flags())
	leave := cmd.Flags().Bool("leave-pods", false, "stop the server only; the next start adopts the pods")
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		progress := stopping{w: cmd.OutOrStdout(), now: time.Now}
		err := monoplane.Down(cmd.Context(), *dir, *leave, progress.show)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "Monoplane has stopped.")
		return err
	}
	return cmd
}
