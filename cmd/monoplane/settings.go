package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"monoplane.dev/internal/datadir"
)

// bindSettings makes every flag of cmd settable by a MONOPLANE_* variable and by a --config file, before the
// command runs. Flags win over variables, variables over the file. Those that say something about one moment
// (addConfirmation) are given on the command line only.
func bindSettings(cmd *cobra.Command) {
	file := cmd.Flags().String("config", "", "YAML file with settings; its keys are the names of the flags")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := applyEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
			return err
		}
		if *file == "" {
			return nil
		}
		return applyFile(cmd.Flags(), *file)
	}
}

// variable returns the environment variable of a flag.
func variable(flag string) string {
	return "MONOPLANE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func applyEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := lookup(variable(f.Name))
		if !ok || f.Changed || f.Name == "help" {
			return
		}
		if momentary(f) {
			errs = append(errs, fmt.Errorf("environment variable %s: --%s is for the command line only", variable(f.Name),
				f.Name))
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s: %w", variable(f.Name), err))
		}
	})
	return errors.Join(errs...)
}

func applyFile(flags *pflag.FlagSet, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(data, &values); err != nil {
		return fmt.Errorf("--config %s: %w", path, err)
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	sort.Strings(names)
	var errs []error
	for _, name := range names {
		f := flags.Lookup(name)
		if f == nil || name == "config" || name == "help" {
			errs = append(errs, fmt.Errorf("--config %s: unknown setting %q; known are: %s", path, name, known(flags)))
			continue
		}
		if momentary(f) {
			errs = append(errs, fmt.Errorf("--config %s: --%s is for the command line only", path, name))
			continue
		}
		if f.Changed {
			continue
		}
		for _, text := range texts(values[name]) {
			if err := flags.Set(name, text); err != nil {
				errs = append(errs, fmt.Errorf("--config %s: %s: %w", path, name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// texts turns a YAML value into what a flag would have been given, once for each element of a list or a mapping.
func texts(value any) []string {
	var out []string
	switch value := value.(type) {
	case []any:
		for _, v := range value {
			out = append(out, fmt.Sprint(v))
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(value)) {
			out = append(out, fmt.Sprintf("%s=%v", k, value[k]))
		}
	default:
		out = append(out, fmt.Sprint(value))
	}
	return out
}

func known(flags *pflag.FlagSet) string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" && f.Name != "help" && !momentary(f) {
			names = append(names, f.Name)
		}
	})
	return strings.Join(names, ", ")
}

// confirmation is the flag that takes the nodes of a copied or restored data directory over.
const confirmation = "confirm-original-dead"

// addConfirmation adds --confirm-original-dead. It is true at the moment at which somebody says so, so that nothing
// that outlives the moment may say it.
func addConfirmation(flags *pflag.FlagSet, confirmed *bool) {
	flags.BoolVar(confirmed, confirmation, false,
		"where the data come from, no server and no pod of this cluster runs any more, nor will again: "+
			"the copy takes over the node, and runs its pods. Said of one start, on the command line only")
}

// momentary reports whether a flag may not be set by what outlives the command.
func momentary(f *pflag.Flag) bool { return f.Name == confirmation }

// addDataDir adds --data-dir.
func addDataDir(flags *pflag.FlagSet) *string {
	return flags.String("data-dir", defaultDataDir(), "directory with everything the cluster keeps")
}

// defaultDataDir is monoplane's folder in the user's data directory.
func defaultDataDir() string {
	dir, ok := userData()
	if !ok {
		return "monoplane-data"
	}
	return filepath.Join(dir, "monoplane")
}

// defaultImageDir is the folder of the images of all the user's clusters. It is beside the default data directory, not
// in it, because it outlives the cluster there.
func defaultImageDir() string {
	dir, ok := userData()
	if !ok {
		return "monoplane-images"
	}
	return filepath.Join(dir, "monoplane-images")
}

// userData returns the user's data directory.
func userData() (string, bool) {
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return dir, true
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "share"), err == nil
}

func kubeconfigPath(dataDir string) string { return filepath.Join(dataDir, datadir.Kubeconfig) }
