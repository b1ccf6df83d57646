package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"monoplane.dev"
)

func newSnapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save all data to a file, or restore it",
		Args:  cobra.NoArgs,
		RunE:  help,

		DisableFlagsInUseLine: true,
	}
	cmd.AddCommand(newSnapshotSaveCommand(), newSnapshotRestoreCommand())
	return cmd
}

func newSnapshotSaveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "save FILE",
		Short:   "Save a consistent copy of a running cluster's data",
		Example: "  monoplane snapshot save backup.db",
		Args:    cobra.ExactArgs(1),
	}
	dir := addDataDir(cmd.Flags())
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		size, err := monoplane.SaveSnapshot(cmd.Context(), *dir, args[0])
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Saved %d bytes to %s\n", size, args[0])
		return err
	}
	return cmd
}

func newSnapshotRestoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "restore FILE",
		Short:   "Make a data directory from a saved copy",
		Example: "  monoplane snapshot restore backup.db --data-dir /tmp/restored",
		Args:    cobra.ExactArgs(1),
	}
	dir := addDataDir(cmd.Flags())
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		if err := monoplane.RestoreSnapshot(*dir, f); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Restored %s; start it with: monoplane up --data-dir %s\n", args[0], *dir)
		return err
	}
	return cmd
}
