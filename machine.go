package monoplane

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"

	"monoplane.dev/apiserver/kinds/core/pod"
	"monoplane.dev/nodeagent"
)

// MachineConfig says what an agent does for its machine. The zero value is a good default.
type MachineConfig struct {
	// ManifestPath is a directory with manifests of static pods, or one manifest; manifests in the node's own directory
	// below DataDir by default. It need not exist. spec: STATIC-1
	ManifestPath string
	// ManifestURL answers with a manifest, Pod or PodList, and is asked every 20 s with ManifestHeader.
	ManifestURL string
	// ManifestHeader may be nil.
	ManifestHeader http.Header
}

// given reports whether anything is set.
func (m *MachineConfig) given() bool {
	return m.ManifestPath != "" || m.ManifestURL != "" || len(m.ManifestHeader) > 0
}

// checkMachine returns what is wrong with Machine.
func (cfg Config) checkMachine() error {
	m := &cfg.Machine
	if cfg.Runtime.Simulated() && m.given() {
		return errors.New("simulated nodes have no machine, so that nothing can be said of it: no static pods")
	}
	if m.ManifestURL == "" {
		return nil
	}
	if u, err := url.Parse(m.ManifestURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("the manifest URL %q is not an http or https URL", m.ManifestURL)
	}
	return nil
}

// apply sets what it says for the agent whose directory is dir.
func (m *MachineConfig) apply(cfg *nodeagent.Config, dir string) {
	cfg.ManifestDir, cfg.ManifestURL, cfg.ManifestHeader = m.ManifestPath, m.ManifestURL, m.ManifestHeader
	if cfg.ManifestDir == "" {
		cfg.ManifestDir = filepath.Join(dir, "manifests")
	}
	cfg.CompletePod = pod.Complete
}
