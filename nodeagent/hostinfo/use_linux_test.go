package hostinfo

import (
	"slices"
	"testing"
	"time"
)

func TestInterfaces(t *testing.T) {
	const counts = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0
 veth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
  eth0: 10 20 30 40 50 60 70 80 90 100 110 120 130 140 150 160
`
	const routes = "Iface\tDestination\tGateway\nveth0\t0000A8C0\t00000000\neth0\t00000000\t0100A8C0\n"
	eth := Interface{Name: "eth0", RxBytes: 10, RxErrors: 30, TxBytes: 90, TxErrors: 110}
	veth := Interface{Name: "veth0", RxBytes: 1, RxErrors: 3, TxBytes: 9, TxErrors: 11}
	if got := parseInterfaces(counts, routes); !slices.Equal(got, []Interface{eth, veth}) {
		t.Errorf("with a route: %+v", got)
	}
	if got := parseInterfaces(counts, ""); !slices.Equal(got, []Interface{veth, eth}) {
		t.Errorf("without: %+v", got)
	}
	if got := parseInterfaces("x", "y"); got != nil {
		t.Errorf("of nonsense: %+v", got)
	}
}

// What the kernel of any machine tells.
func TestUseIsRead(t *testing.T) {
	if at := Booted(); at.IsZero() || at.After(time.Now()) {
		t.Errorf("booted at %s", at)
	}
	if m := MemoryInUse(); m.Used <= 0 || m.Anonymous <= 0 || m.Faults <= 0 || m.MajorFaults < 0 ||
		m.SwapFree > m.SwapTotal {
		t.Errorf("%+v", m)
	}
	if r := RoomOf("/"); r.Free < r.Available || r.Free > r.Size {
		t.Errorf("%+v", r)
	}
}
