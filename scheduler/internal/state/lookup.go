package state

// NodeOf returns the node that a pod counts on, assumed or confirmed; "" when it counts on none.
func (s *State) NodeOf(uid string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.pods[uid]; ok {
		return e.node
	}
	return ""
}
