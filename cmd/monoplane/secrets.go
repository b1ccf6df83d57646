package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"monoplane.dev/apiserver/store/seal"
	"monoplane.dev/client/admin"
)

func newSecretsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Change the key with which Secrets are encrypted",
		Args:  cobra.NoArgs,
		RunE:  help,

		DisableFlagsInUseLine: true,
	}
	rotate := &cobra.Command{
		Use:   "rotate",
		Short: "Encrypt all Secrets with a new key",
		Long: `Makes a new key and encrypts all Secrets of a running cluster with it. Every Secret gets a new
resourceVersion by that.

The keys are in the file secrets.key of the data directory, the newest first. The older ones stay
there, because snapshots that were saved before need them: remove those lines when you have no such
snapshot any more. Take a new copy of the file after each rotation.`,
		Args: cobra.NoArgs,
	}
	dir := addDataDir(rotate.Flags())
	bindSettings(rotate)
	rotate.RunE = func(cmd *cobra.Command, _ []string) error {
		key, n, err := admin.RotateSecretsKey(cmd.Context(), *dir)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Encrypted %d Secrets with the new key %s; take a new copy of %s\n",
			n, key, filepath.Join(*dir, seal.FileName))
		return err
	}
	cmd.AddCommand(rotate)
	return cmd
}
