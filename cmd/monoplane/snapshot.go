package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"monoplane.dev"
	"monoplane.dev/apiserver/store/seal"
	"monoplane.dev/client/admin"
)

func newSnapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save all data to a file, or restore it",
		Long: `Saves the data of a running cluster to a file, or makes a data directory of such a file.

A snapshot holds the objects: nodes, pods and all others. Secrets in it are encrypted, and their key
is not in it: without the file secrets.key of the data directory nobody can read them, so keep a copy
of it, elsewhere. It does not hold the pods' processes, logs and volumes, nor the certificates: a
restored cluster makes new ones.

A restored cluster is a copy. The pods that it knows may still run where the snapshot was taken, so
that it starts none of them: its node is refused until you confirm, with --confirm-original-dead,
that the original is dead with all its pods and will not come back. The same holds for a data
directory that was copied. What has changed since the snapshot was taken is not known to the copy.`,
		Args: cobra.NoArgs,
		RunE: help,

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
		saved, err := admin.SaveSnapshot(cmd.Context(), *dir, args[0])
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Saved %d bytes to %s\n"+
			"Secrets in it are encrypted with key %s, which is not in it: keep a copy of %s, elsewhere\n",
			saved.Bytes, args[0], saved.SecretsKey, filepath.Join(*dir, seal.FileName))
		return err
	}
	return cmd
}

func newSnapshotRestoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a data directory from a saved copy",
		Long: `Makes a data directory from a saved copy. The directory must not hold a cluster.

The copy does not get the node of the original: its pods may still run there. The API serves, and
nothing is started or stopped. Once the original is dead with all its pods, and will not come back,
--confirm-original-dead, here or with the first "monoplane up", takes the node over.`,
		Example: "  monoplane snapshot restore backup.db --secrets-key secrets.key --data-dir ~/clusters/restored",
		Args:    cobra.ExactArgs(1),
	}
	dir := addDataDir(cmd.Flags())
	var opts monoplane.RestoreOptions
	addConfirmation(cmd.Flags(), &opts.ConfirmOriginalDead)
	key := cmd.Flags().String("secrets-key", "",
		"copy of the original's file secrets.key; without it put one into the directory before the start")
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		if *key != "" {
			if opts.SecretsKey, err = os.ReadFile(*key); err != nil {
				return err
			}
		}
		if err := monoplane.RestoreSnapshot(*dir, f, opts); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Restored %s; start it with: monoplane up --data-dir %s\n", args[0], *dir)
		return err
	}
	return cmd
}
