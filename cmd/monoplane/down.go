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
with the settings of the last up, and so it does with what a server could not take away at its end. Where the
data directory can only be read, it gives them 30 seconds, as no server can be started there.`,
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
		none, used := (*admin.NotRunningError)(nil), (*dirlock.InUseError)(nil)
		switch {
		case *leave:
		case errors.As(err, &none):
			stop() // a signal ends the server that is started now
			err = stopLeft(cmd, *dir, none)
		case err == nil:
			stop()
			// Whoever has the directory by now takes over what is left.
			if err = stopRest(cmd, *dir); errors.As(err, &used) {
				err = nil
			}
		}
		if errors.As(err, &used) { // Another down was first.
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

// stopRest takes away what a server has left that has stopped its pods.
func stopRest(cmd *cobra.Command, dataDir string) error {
	dir, err := datadir.Open(dataDir)
	if err != nil {
		return err
	}
	last, err := readLastUp(dir)
	if err != nil || last == nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "The server has not taken away all that it had here; doing that now.")
	return last.emptyOut(cmd, dir)
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
	fmt.Fprintf(cmd.OutOrStdout(), "No server runs on %s; stopping what the last one has left.\n", dataDir)
	err = last.emptyOut(cmd, dir)
	if errors.Is(err, syscall.EROFS) {
		return endUnwritable(cmd.Context(), cmd.OutOrStdout(), dir.Path())
	}
	return err
}

// emptyOut starts a server as the last one, in order to end what that has left.
func (l *lastUp) emptyOut(cmd *cobra.Command, dir *datadir.Dir) error {
	options, err := l.options(dir.Path())
	if err != nil {
		return fmt.Errorf("what the last server has left cannot be stopped without starting it again: %w", err)
	}
	cfg, err := options.config(cmd.OutOrStdout(), cmd.ErrOrStderr())
	if err != nil {
		return fmt.Errorf("what the last server has left cannot be stopped without starting it again: %w", err)
	}
	return emptyOut(cmd.Context(), cfg, cmd.OutOrStdout())
}
