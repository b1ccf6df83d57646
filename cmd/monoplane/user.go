package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"monoplane.dev/apiserver/pki"
	"monoplane.dev/internal/datadir"
)

// defaultUserLife is how long the certificate of a user is good for.
const defaultUserLife = 90 * 24 * time.Hour

func newUserCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user NAME",
		Short: "Write a kubeconfig for a user",
		Long: `Writes a kubeconfig with a certificate for a user, signed by the authority in the data directory. The user
may do what roles say, and nothing without one. Certificates cannot be taken back: one is good until it expires.`,
		Example: `  monoplane user jane --group developers
  kubectl create rolebinding jane --clusterrole=edit --user=jane
  kubectl --kubeconfig jane.kubeconfig auth whoami`,
		Args: cobra.ExactArgs(1),
	}
	dir := addDataDir(cmd.Flags())
	groups := cmd.Flags().StringArray("group", nil, "group that the user is in; may be given several times")
	life := cmd.Flags().Duration("duration", defaultUserLife, "how long the certificate is good for; a year at most")
	output := cmd.Flags().StringP("output", "o", "",
		"file to write, which must not exist; - prints it (default NAME.kubeconfig)")
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		data, err := userKubeconfig(*dir, args[0], *groups, *life)
		if err != nil {
			return err
		}
		if *output == "-" {
			_, err = cmd.OutOrStdout().Write(data)
			return err
		}
		path := *output
		if path == "" {
			path = args[0] + ".kubeconfig"
		}
		if err := writeNew(path, data); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is the kubeconfig of user %s, good until %s.\n",
			path, args[0], time.Now().Add(*life).Format(time.DateOnly))
		return err
	}
	return cmd
}

// userKubeconfig returns a kubeconfig for a new certificate, for the server that the administrator's is for.
func userKubeconfig(dataDir, name string, groups []string, life time.Duration) ([]byte, error) {
	if strings.HasPrefix(name, "system:") || strings.ContainsAny(name, "/\\\x00") {
		return nil, fmt.Errorf("a user cannot be called %q: such names are the cluster's own, or name no file", name)
	}
	var admin []byte
	d, err := datadir.Open(dataDir)
	if err == nil {
		admin, err = d.ReadSecret(datadir.Kubeconfig)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no cluster in %s; start one first: monoplane up --data-dir %s", dataDir, dataDir)
	}
	if err != nil {
		return nil, err
	}
	at, err := pki.EndpointsOf(admin)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kubeconfigPath(dataDir), err)
	}
	bundle, err := pki.Ensure(filepath.Join(dataDir, "pki"), pki.Options{})
	if err != nil {
		return nil, err
	}
	id, err := bundle.Issue(name, groups, life)
	if err != nil {
		return nil, err
	}
	return pki.Kubeconfig(id, at)
}

// writeNew writes a file that only its owner reads, and that was not there before.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user names the file
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
