package charge

// Sheets returns of how many namespaces the ledger keeps something.
func (l *Ledger) Sheets() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sheet)
}
