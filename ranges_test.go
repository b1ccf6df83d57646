package monoplane_test

import (
	"testing"

	"monoplane.dev"
)

// ownNetwork has a network of pods, of which nothing is asked here.
type ownNetwork struct{ networkRuntime }

func (ownNetwork) HasNetwork() bool { return true }

// Pods that could reach neither the API nor the DNS, for want of an address of their family, are refused at the start.
func TestFamilies(t *testing.T) {
	const four, six, services4, services6 = "10.244.0.0/16", "fd00:244::/56", "10.96.0.0/16", "fd00:96::/112"
	for _, c := range []struct {
		pods, services string
		refused        bool
	}{
		{four, "", false}, {four, services4, false}, {four, services4 + "," + services6, false}, {six, services6, false},
		{four + "," + six, services6, false}, {six + "," + four, services4, false},
		{four, services6, true}, {four, services6 + "," + services4, true}, {six, "", true},
	} {
		for _, r := range []monoplane.Runtime{
			ownNetwork{networkRuntime{Runtime: monoplane.FakeRuntime()}}, monoplane.FakeRuntime(),
		} {
			_, has := r.(ownNetwork)
			err := monoplane.Check(monoplane.Config{DataDir: "/none", NodeName: "here", Runtime: r, ClusterCIDR: c.pods,
				ServiceClusterIPRange: c.services})
			if (err != nil) != (c.refused && has) {
				t.Errorf("pods %s, Services %s, with a network of their own %v: %v", c.pods, c.services, has, err)
			}
		}
	}
}
