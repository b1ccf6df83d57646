package cni

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"monoplane.dev/internal/datadir"
)

// recordExtension is that of the files that say what plugins were asked to add, one for each sandbox.
const recordExtension = ".json"

// record is what plugins were asked to add, to ask them to delete it: the configuration may have changed meanwhile.
type record struct {
	Network      string            `json:"network"`
	CNIVersion   string            `json:"cniVersion"`
	Plugins      []json.RawMessage `json:"plugins"`
	Args         [][2]string       `json:"args"`
	Capabilities map[string]any    `json:"capabilities,omitempty"`
}

// list is the network as it was.
func (r *record) list() (*libcni.NetworkConfigList, error) {
	list := &libcni.NetworkConfigList{Name: r.Network, CNIVersion: r.CNIVersion}
	for _, text := range r.Plugins {
		p, err := libcni.NetworkPluginConfFromBytes(text)
		if err != nil {
			return nil, err
		}
		list.Plugins = append(list.Plugins, p)
	}
	return list, named(r.Network)
}

// runtimeConf says of which sandbox plugins are asked; namespace is the path of its network namespace, empty for none.
func (r *record) runtimeConf(id, namespace string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: id, NetNS: namespace, IfName: ifName, Args: r.Args,
		CapabilityArgs: r.Capabilities}
}

// records is a directory of them.
type records struct{ *datadir.Dir }

// ids lists the sandboxes that have one.
func (d records) ids() ([]string, error) {
	files, err := os.ReadDir(d.Path())
	if err != nil {
		return nil, err
	}
	var all []string
	for _, f := range files {
		// One that was being written begins with a dot: nobody has been asked anything yet.
		if id, is := strings.CutSuffix(f.Name(), recordExtension); is && !strings.HasPrefix(id, ".") {
			all = append(all, id)
		}
	}
	return all, nil
}

// save returns when the record outlives a power failure.
func (d records) save(id string, r *record) error {
	text, err := json.Marshal(r)
	if err == nil {
		err = d.Write(id+recordExtension, text)
	}
	if err == nil {
		err = d.Sync()
	}
	if err != nil {
		return fmt.Errorf("what CNI is asked for the sandbox %s cannot be kept: %w", id, err)
	}
	return nil
}

// read fails with fs.ErrNotExist where there is none.
func (d records) read(id string) (*record, *libcni.NetworkConfigList, error) {
	text, err := d.ReadFile(id + recordExtension)
	if err != nil {
		return nil, nil, err
	}
	r := new(record)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, nil, fmt.Errorf("%s of %s: %w: %w", id+recordExtension, d.Path(), errDamaged, err)
	}
	list, err := r.list()
	if err != nil {
		return nil, nil, fmt.Errorf("%s of %s: %w: %w", id+recordExtension, d.Path(), errDamaged, err)
	}
	return r, list, nil
}
