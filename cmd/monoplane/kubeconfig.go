package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"monoplane.dev/internal/datadir"
)

func newKubeconfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "kubeconfig",
		Short:   "Print where the administrator's kubeconfig is",
		Example: "  export KUBECONFIG=$(monoplane kubeconfig)",
		Args:    cobra.NoArgs,
	}
	dir := addDataDir(cmd.Flags())
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		path, err := filepath.Abs(kubeconfigPath(*dir))
		if err != nil {
			return err
		}
		// Whoever uses a kubeconfig runs what it names, so that it must be the user's own.
		d, err := datadir.Open(*dir)
		if err == nil {
			_, err = d.ReadSecret(filepath.Base(path))
		}
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("no kubeconfig at %s; start the cluster first: monoplane up --data-dir %s", path, *dir)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), path)
		return err
	}
	return cmd
}
