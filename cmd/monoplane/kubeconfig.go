package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
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
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("no kubeconfig at %s; start the cluster first: monoplane up --data-dir %s", path, *dir)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), path)
		return err
	}
	return cmd
}
