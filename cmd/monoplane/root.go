package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

// newRootCommand returns the command of the program, which the user calls by name.
func newRootCommand(name string, stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use: programName,
		// Usage lines begin with it, also those of the commands below.
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},

		Short: "A Kubernetes pod control plane in one binary",
		Long: `Monoplane is a Kubernetes pod control plane in one binary: etcd, the API over gRPC and REST,
the scheduler, the controllers and a node agent.

Start a cluster on this machine:

  ` + name + ` up

Then, in another terminal, with any kubectl:

  export KUBECONFIG=$(` + name + ` kubeconfig)
  kubectl get nodes

Every flag can also be set by an environment variable (--data-dir by MONOPLANE_DATA_DIR) or in a
YAML file given with --config (data-dir: /path). A flag wins over a variable, a variable over the file.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		Args:              cobra.NoArgs,
		RunE:              help,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},

		DisableFlagsInUseLine: true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(newUpCommand(), newDownCommand(), newKubeconfigCommand(), newSnapshotCommand(), newWhyCommand(),
		newDoctorCommand(), newNodeCommand(), newUserCommand(), newSecretsCommand(), newImageCommand(), newVersionCommand())
	return root
}

// help is what a command does that only groups others. With it, cobra refuses an unknown subcommand instead of
// printing the help and succeeding.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "monoplane %s (%s, %s/%s)\n",
				version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
