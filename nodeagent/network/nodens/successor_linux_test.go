package nodens_test

import (
	"testing"

	"github.com/google/nftables"
)

func TestRootlessSuccessor(t *testing.T) { asUser(t, testSuccessor) }

// testSuccessor: the next pod with an address gets none of the flows that the one before it had: neither those of
// clients who were led to it, nor what answers its own.
func testSuccessor(t *testing.T) {
	n := open(t, config(t))
	servesAll(podIn(t, n, "a", plain(5)))
	client := podIn(t, n, "c", plain(7))
	translate(t, n, "10.96.0.5", 80, "10.244.0.5", 80)
	client.do(order{Hold: 1, By: "udp", Addr: "10.96.0.5:80"})
	client.do(order{Talk: true})
	check(t, n.Detach(t.Context(), "a", addresses(5)...))
	conn, err := n.NFTables()
	check(t, err)
	conn.DelTable(&nftables.Table{Name: "translate", Family: nftables.TableFamilyIPv4})
	check(t, conn.Flush())
	b := servesAll(podIn(t, n, "b", plain(5)))
	if got := client.try(order{Talk: true}); got.Err == "" {
		t.Errorf("the pod that has the address now has answered: %s", got.Text)
	}
	if from := b.do(order{Heard: true}).Text; from != "" {
		t.Errorf("the pod that has the address now has heard from %s", from)
	}
	client.do(order{Ask: "udp", Addr: "10.244.0.5:80"})
}
