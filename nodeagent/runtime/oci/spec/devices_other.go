//go:build !linux

package spec

import "errors"

// devices exist on Linux only.
func (b *Bundle) devices(in Input) error {
	if len(in.Container.GetDevices()) > 0 {
		return errors.New("devices exist on Linux only")
	}
	return nil
}
