//go:build rootonly

package nodens_test

import (
	"os/exec"
	"strings"
	"testing"

	"monoplane.dev/nodeagent/network/nodens"
)

// TestRootStrangers: what is ours on the machine carries the name of the cluster's link or table.
func TestRootStrangers(t *testing.T) {
	if !onMachine(t, false, strangers) {
		return
	}
	world(t)
	link, table := nodens.HostLink("test"), nodens.HostTable("test")
	ours := func(line string) bool {
		return strings.Contains(line, link) ||
			strings.HasPrefix(line, "nftables ") && strings.Contains(line, " of "+table+": ")
	}
	t.Run("that let pass", func(t *testing.T) {
		testStrangers(t, nodens.EgressMasquerade, neighbour+":80", ours)
	})
	t.Run("that reject", func(t *testing.T) {
		rejects(t)
		testStrangers(t, nodens.EgressProcess, neighbour+":80", ours)
	})
}

// TestRootDockerDrops: pods of both families reach out beside the rules that Docker makes by each of the programs that
// it may find, with which the kernel drops what is forwarded for others, and leave those as they are.
func TestRootDockerDrops(t *testing.T) {
	for _, program := range []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"} {
		t.Run(program, func(t *testing.T) {
			if onMachine(t, false) {
				testDockerDrops(t, program)
			}
		})
	}
}

func testDockerDrops(t *testing.T, program string) {
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("Docker would not find it here: %v", err)
	}
	world6(t)
	everywhere := []string{neighbour + ":80", "[" + neighbour6 + "]:80"}
	n := open(t, config(t))
	a := podIn(t, n, "a", plain(5))
	goesOut := func(way nodens.Egress, why string) {
		t.Helper()
		testGoesOut(t, n, a, way, why, everywhere...)
	}
	goesOut(nodens.EgressMasquerade, "")
	for _, rule := range []string{
		"-N DOCKER-USER", "-A FORWARD -j DOCKER-USER",
		"-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
		"-A FORWARD -i docker0 -j ACCEPT", "-P FORWARD DROP",
	} {
		if out, err := exec.Command(program, strings.Fields(rule)...).CombinedOutput(); err != nil {
			t.Skipf("the kernel has no rules of %s: %s: %s", program, rule, out)
		}
	}
	rules := func() string {
		out, err := exec.Command(program, "-S").Output()
		check(t, err)
		return string(out)
	}
	before := rules()
	check(t, n.Verify(t.Context()))
	why := "FORWARD of the machine's table filter drops"
	if strings.HasSuffix(program, "-legacy") {
		why = "rules of the old iptables"
	}
	goesOut(nodens.EgressProcess, why)
	if now := rules(); now != before || !strings.Contains(now, "-P FORWARD DROP") {
		t.Errorf("the rules\n%sbecame\n%s", before, now)
	}
}
