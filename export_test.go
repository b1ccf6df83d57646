package monoplane

// DetectMutations returns cfg for a cluster whose Stop fails when somebody has changed an object that the store holds.
// Objects share parts, so that one such change would show in many of them.
func (cfg Config) DetectMutations() Config {
	cfg.detectMutations = true
	return cfg
}
