package servicerange

// Ranges is what addresses and ports are given out from. Servers of one etcd should have the same.
type Ranges struct {
	// Addresses are one or two ranges, of different families; without any DefaultAddresses.
	Addresses []Addresses
	// Ports are the node ports; DefaultPorts when zero.
	Ports Ports
}

// Complete fills in what is optional.
func (r Ranges) Complete() Ranges {
	// The defaults are constants that can be read, which a test shows.
	if len(r.Addresses) == 0 {
		r.Addresses, _ = ParseAddresses(DefaultAddresses)
	}
	if r.Ports == (Ports{}) {
		r.Ports, _ = ParsePorts(DefaultPorts)
	}
	return r
}
