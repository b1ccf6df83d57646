package main

import (
	"net/http"
	"path/filepath"

	"github.com/spf13/pflag"

	"monoplane.dev"
)

// machineOptions are the flags about the machine that pods run on.
type machineOptions struct {
	manifestPath   string
	manifestURL    string
	manifestHeader map[string]string
}

func (o *machineOptions) add(flags *pflag.FlagSet) {
	flags.StringVar(&o.manifestPath, "pod-manifest-path", "",
		"directory with manifests of static pods, or one manifest (default: DATA-DIR/nodes/NAME/manifests)")
	flags.StringVar(&o.manifestURL, "manifest-url", "",
		"URL of a manifest with static pods, a Pod or a PodList; it is asked every 20 s")
	flags.StringToStringVar(&o.manifestHeader, "manifest-url-header", nil,
		"headers for the requests to --manifest-url, such as Authorization=...")
}

func (o *machineOptions) config() (monoplane.MachineConfig, error) {
	m := monoplane.MachineConfig{ManifestURL: o.manifestURL}
	if o.manifestPath != "" {
		path, err := filepath.Abs(o.manifestPath)
		if err != nil {
			return m, err
		}
		m.ManifestPath = path
	}
	for k, v := range o.manifestHeader {
		if m.ManifestHeader == nil {
			m.ManifestHeader = http.Header{}
		}
		m.ManifestHeader.Set(k, v)
	}
	return m, nil
}
