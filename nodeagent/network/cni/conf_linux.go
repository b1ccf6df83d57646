package cni

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"
)

// listExtension is that of files with several plugins. Files of the others have one.
const listExtension = ".conflist"

// errNone says that there is no configuration yet.
var errNone = errors.New("no network is configured")

// load returns the network of a directory: that of its first file, by name, that ends in .conflist, .conf or .json.
// That one must make sense: to take the next instead would connect pods to a network that nobody meant.
func load(dir string) (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(dir, []string{listExtension, ".conf", ".json"})
	if err != nil {
		return nil, fmt.Errorf("the configuration of CNI: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: %s has no file .conflist, .conf or .json of CNI", errNone, dir)
	}
	list, err := read(slices.Min(files))
	if err != nil {
		return nil, fmt.Errorf("the configuration of CNI %s: %w", slices.Min(files), err)
	}
	return list, nil
}

func read(file string) (*libcni.NetworkConfigList, error) {
	if filepath.Ext(file) == listExtension {
		list, err := libcni.NetworkConfFromFile(file)
		if err != nil {
			return nil, err
		}
		return list, named(list.Name)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	plugin, err := libcni.NetworkPluginConfFromBytes(text)
	if err != nil {
		return nil, err
	}
	return &libcni.NetworkConfigList{Name: plugin.Network.Name, CNIVersion: plugin.Network.CNIVersion,
		Plugins: []*libcni.PluginConfig{plugin}, Bytes: text}, named(plugin.Network.Name)
}

// named refuses names that cannot be files: results are kept by them.
func named(name string) error {
	if err := utils.ValidateNetworkName(name); err != nil {
		return fmt.Errorf("the name %q of the network: %w", name, err)
	}
	return nil
}

// asksFor tells whether a plugin of the network wants to be told something.
func asksFor(list *libcni.NetworkConfigList, capability string) bool {
	return slices.ContainsFunc(list.Plugins, func(p *libcni.PluginConfig) bool {
		return p.Network.Capabilities[capability]
	})
}
