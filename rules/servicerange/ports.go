package servicerange

import (
	"fmt"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// DefaultPorts is the range of node ports where none is given.
const DefaultPorts = "30000-32767"

// Ports is a range of node ports.
type Ports struct{ first, size, lower int }

// ParsePorts reads a range such as "30000-32767", both ends included.
func ParsePorts(text string) (Ports, error) {
	r, err := utilnet.ParsePortRange(text)
	if err != nil {
		return Ports{}, fmt.Errorf("%q is no range of ports, such as %s: %w", text, DefaultPorts, err)
	}
	if r.Size == 0 || r.Base < 1 {
		return Ports{}, fmt.Errorf("%q has no ports, or port 0; it must be as %s", text, DefaultPorts)
	}
	return Ports{first: r.Base, size: r.Size, lower: int(band(uint64(r.Size), 32, 128))}, nil
}

// String returns the range as it is written.
func (p Ports) String() string {
	return utilnet.PortRange{Base: p.first, Size: p.size}.String()
}

// Contains says whether a Service can have the port.
func (p Ports) Contains(port int32) bool {
	return int(port) >= p.first && int(port) < p.first+p.size
}

// Pick returns a port that is not taken; ok is false when all are. random returns a number below n.
func (p Ports) Pick(random func(n uint64) uint64, taken func(int32) bool) (port int32, ok bool) {
	if port, ok = p.pick(p.first+p.lower, p.size-p.lower, random, taken); ok {
		return port, true
	}
	return p.pick(p.first, p.lower, random, taken)
}

func (p Ports) pick(first, n int, random func(n uint64) uint64, taken func(int32) bool) (port int32, ok bool) {
	if n <= 0 {
		return 0, false
	}
	begin := int(random(uint64(n)))
	for i := range n {
		if port = int32(first + (begin+i)%n); !taken(port) {
			return port, true
		}
	}
	return 0, false
}
