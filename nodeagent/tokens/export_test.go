package tokens

// Count returns how many tokens are remembered.
func Count(m *Manager) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, tokens := range m.pods {
		n += len(tokens)
	}
	if n != m.count {
		return -1
	}
	return n
}
