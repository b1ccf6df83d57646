package monoplane

// OnMutation returns cfg for a cluster that tells f when somebody has changed an object that the store holds.
// Objects share parts, so that one such change would show in many of them.
func (cfg Config) OnMutation(f func(error)) Config {
	cfg.onMutation = f
	return cfg
}

// Check returns what is wrong with a configuration.
func Check(cfg Config) error {
	_, err := cfg.complete()
	return err
}

// KubeletVersion is what nodes say of their agents when the program has this version.
func KubeletVersion(program string) string { return kubeletVersion(program) }
