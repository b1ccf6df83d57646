package nodens_test

import (
	"net"
	"os"
	"strings"
	"testing"

	"monoplane.dev/nodeagent/network/nodens"
)

func TestRootlessNobody(t *testing.T) { asUser(t, testNobody) }

// testNobody: who asks at an address of the pods, the node or the Services where nobody is learns that at once, and
// what was sent does not go round between machine and node namespace.
func testNobody(t *testing.T) {
	n := open(t, config(t))
	clients := map[string]func(network, addr string) (string, error){"a pod": asking(podIn(t, n, "a", plain(5)))}
	passed := func() uint64 { return 0 }
	if !n.Status().Rootless {
		clients["the machine"] = asks
		passed = func() uint64 {
			s := linkOf(t, nodens.HostLink("test")).Attrs().Statistics
			return s.RxPackets + s.TxPackets
		}
	}
	hosts := []string{"10.244.0.77", "10.244.0.0", "10.244.0.1", "10.244.0.2", "10.96.0.77"}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil {
		hosts = append(hosts, "fd00:244::77", "fd00:244::1", "fd00:244::2")
	}
	for who, ask := range clients {
		for _, host := range hosts {
			before := passed()
			_, err := ask("tcp", net.JoinHostPort(host, "7"))
			if err == nil || strings.Contains(err.Error(), "timeout") {
				t.Errorf("%s asks at %s, where nobody is: %v", who, host, err)
			}
			// A packet to the machine, and its answer, are two; what neighbours say comes beside.
			if most, now := uint64(16), passed(); now-before > most {
				t.Errorf("%s asks at %s: %d packets passed the link to the machine; want at most %d", who, host, now-before,
					most)
			}
		}
	}
}
