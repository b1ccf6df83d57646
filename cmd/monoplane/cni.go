package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

	"monoplane.dev/nodeagent/runtime/ocinode"
)

// pluginDirs are where plugins of CNI usually are: their own releases put them into the first, Debian into the second.
var pluginDirs = []string{"/opt/cni/bin", "/usr/lib/cni"}

// cniOptions are the settings of a network by CNI.
type cniOptions struct {
	confDir string
	binDirs []string
}

func (o *cniOptions) add(flags *pflag.FlagSet) {
	flags.StringVar(&o.confDir, "cni-conf-dir", "",
		"directory with a configuration of CNI, such as /etc/cni/net.d, to have pods connected by its plugins instead of "+
			"by Monoplane, with --runtime=oci as root: its first file .conflist, .conf or .json, by name. Services, names and "+
			"NetworkPolicies are then not Monoplane's")
	flags.StringSliceVar(&o.binDirs, "cni-bin-dir", pluginDirs, "directories with the plugins that --cni-conf-dir names")
}

// config returns nil where pods are not connected by CNI. Runtime is what --runtime says, empty for another one.
func (o *cniOptions) config(runtime string, uid int) (*ocinode.CNI, error) {
	switch {
	case o.confDir == "" && !slices.Equal(o.binDirs, pluginDirs):
		return nil, errors.New("--cni-bin-dir: it goes with --cni-conf-dir")
	case o.confDir == "":
		return nil, nil
	case runtime != "oci":
		return nil, errors.New("--cni-conf-dir: only the runtime oci has its pods connected by CNI (--runtime=oci)")
	case uid != 0:
		return nil, fmt.Errorf("--cni-conf-dir: plugins of CNI need root, and this is user %d", uid)
	case len(o.binDirs) == 0:
		return nil, errors.New("--cni-bin-dir: no directory is given")
	}
	c := &ocinode.CNI{ConfDir: o.confDir, BinDirs: slices.Clone(o.binDirs)}
	if err := absolute("--cni-conf-dir", &c.ConfDir); err != nil {
		return nil, err
	}
	for i := range c.BinDirs {
		if err := absolute("--cni-bin-dir", &c.BinDirs[i]); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// absolute makes the path of a directory absolute. It need not exist yet, and must not be anything else.
func absolute(flag string, dir *string) (err error) {
	if *dir, err = filepath.Abs(*dir); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if info, err := os.Stat(*dir); err == nil && !info.IsDir() {
		return fmt.Errorf("%s: %s is not a directory", flag, *dir)
	}
	return nil
}
