package monoplane

import (
	"fmt"
	"os"

	"monoplane.dev/scheduler/configfile"
)

// SchedulerConfig configures the scheduler. The zero value is one profile, default-scheduler, with the usual plugins.
type SchedulerConfig struct {
	// File is the path of a KubeSchedulerConfiguration, in YAML or JSON. Start refuses a faulty one with all its faults,
	// before it does anything else.
	File string
	// Text is the configuration itself; then File is only its name in faults.
	Text []byte
	// Plugins are those of your own, which the configuration may then enable by name.
	Plugins configfile.Registry
}

// read returns nil when there is nothing to read.
func (s SchedulerConfig) read() (*configfile.Config, error) {
	if s.File == "" && s.Text == nil {
		return nil, nil
	}
	if s.Text == nil {
		text, err := os.ReadFile(s.File)
		if err != nil {
			return nil, fmt.Errorf("the scheduler's configuration: %w", err)
		}
		s.Text = text
	} else if s.File == "" {
		s.File = "scheduler configuration"
	}
	return configfile.Parse(s.File, s.Text, s.Plugins)
}
