package helper

import (
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"

	"monoplane.dev/nodeagent/network/nodens/internal/rules"
	"monoplane.dev/nodeagent/network/nodens/internal/wire"
	"monoplane.dev/nodeagent/network/test/netnstest"
)

func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }

// TestKernelsWithoutQueues: a way of asking that the kernel does not have leaves nothing behind but the next one.
// Where it has none, the rules are those of a process that has no queue.
func TestKernelsWithoutQueues(t *testing.T) {
	const queue = 7
	at := []netip.AddrPort{netip.MustParseAddrPort("10.244.0.1:4000")}
	want := &wire.Setup{PodRanges: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")}, Process: true, Queue: queue,
		TCP: at, UDP: at}
	without := *want
	without.Queue = 0
	absent := rules.One(&expr.Target{Name: "ABSENT", Info: &xt.Unknown{}})
	has := rules.Verdict(expr.VerdictAccept)
	silent := []string{"output", "refusals", "around", "prerouting", "forward"}
	asking := []string{"output", "refusals", "around", "prerouting", "ask", "answer", "forward"}
	for _, c := range []struct {
		name  string
		write func() error
		want  []string
	}{
		{"no queue", func() error { return setRules(&without) }, silent},
		{"the first", func() error { return writeFirst(want, [][]expr.Any{has, absent, nil}) }, asking},
		{"the second", func() error { return writeFirst(want, [][]expr.Any{absent, has, nil}) }, asking},
		{"none", func() error { return writeFirst(want, [][]expr.Any{absent, absent, nil}) }, silent},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := netnstest.New(t)
			ns.Do(func() error { return setRules(want) }) // The table before.
			ns.Do(c.write)
			if got := chains(t, ns); !slices.Equal(got, c.want) {
				t.Errorf("the chains are %v; want %v", got, c.want)
			}
		})
	}
	ns := netnstest.New(t)
	if err := ns.Try(func() error { return writeFirst(want, [][]expr.Any{absent, absent}) }); err == nil {
		t.Error("the kernel has a target ABSENT")
	}
}

// chains returns the names of the table's chains.
func chains(t *testing.T, ns *netnstest.NS) (names []string) {
	t.Helper()
	ns.Rules(func(conn *nftables.Conn) error {
		all, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
		for _, c := range all {
			names = append(names, c.Name)
		}
		return err
	})
	return names
}
