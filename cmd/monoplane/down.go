package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"monoplane.dev/client/admin"
	"monoplane.dev/internal/datadir"
	"monoplane.dev/internal/dirlock"
	"monoplane.dev/internal/machinekey"
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

Pods and their network outlive a server that was killed, or told to leave them. Then down stops them itself,
with the settings of the last up.`,
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
		if none := (*admin.NotRunningError)(nil); errors.As(err, &none) && !*leave {
			stop() // a signal ends the server that is started now
			err = stopLeft(cmd, *dir, none)
		}
		if used := (*dirlock.InUseError)(nil); errors.As(err, &used) { // Another down was first.
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			err = admin.Stop(ctx, *dir, *leave, progress.show)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "Monoplane has stopped.")
		return err
	}
	return cmd
}

// stopLeft stops the pods of a server that does not run any more. The error says that there is none, when nothing may
// be left of one.
func stopLeft(cmd *cobra.Command, dataDir string, none *admin.NotRunningError) error {
	dir, err := datadir.Open(dataDir)
	if err != nil {
		return err
	}
	last, err := readLastUp(dir)
	if err != nil || last == nil {
		return errors.Join(none, err)
	}
	copied, err := machinekey.Copied(dir)
	switch {
	case err != nil:
		return errors.Join(none, err)
	case copied != "":
		return fmt.Errorf("%w; pods that it tells of are those of another directory: %s", none, copied)
	}
	options, err := last.options(dir.Path())
	if err != nil {
		return fmt.Errorf("%w, and the pods of the last one cannot be stopped without it: %w", none, err)
	}
	cfg, err := options.config(cmd.OutOrStdout(), cmd.ErrOrStderr())
	if err != nil {
		return fmt.Errorf("%w, and the pods of the last one cannot be stopped without it: %w", none, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "No server runs on %s; stopping what the last one has left.\n", dataDir)
	return emptyOut(cmd.Context(), cfg, cmd.OutOrStdout())
}
