package proxy

import "errors"

// Ready returns nil once Services can be reached and names are answered.
func (p *Proxy) Ready() error {
	if !p.working.Load() {
		return errors.New("the network of Services is not set up yet")
	}
	return nil
}
