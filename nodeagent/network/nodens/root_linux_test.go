//go:build rootonly

package nodens_test

import (
	"testing"

	"monoplane.dev/nodeagent/network/nodens"
)

// spec: NET-1
func TestRootPods(t *testing.T) {
	if onMachine(t, false) {
		testPods(t, nodens.EgressMasquerade)
	}
}

func TestRootNFTables(t *testing.T) {
	if onMachine(t, false) {
		testNFTables(t)
	}
}

func TestRootManyServices(t *testing.T) {
	if onMachine(t, false) {
		testManyServices(t)
	}
}

func TestRootRefusals(t *testing.T) {
	if onMachine(t, false) {
		testRefusals(t)
	}
}

func TestRootSpoofing(t *testing.T) {
	if onMachine(t, false) {
		testSpoofing(t)
	}
}

func TestRootPorts(t *testing.T) {
	if onMachine(t, false) {
		testPorts(t)
	}
}

func TestRootPortsOfFamilies(t *testing.T) {
	if onMachine(t, false, strangeClients) {
		testPortsOfFamilies(t)
	}
}

func TestRootHelperKilled(t *testing.T) {
	if onMachine(t, false) {
		testHelperKilled(t)
	}
}

func TestRootHelperHangs(t *testing.T) {
	if onMachine(t, false) {
		testHelperHangs(t)
	}
}

func TestRootBothHang(t *testing.T) {
	if onMachine(t, false) {
		testBothHang(t)
	}
}

func TestRootSpareHangsAtTheEnd(t *testing.T) {
	if onMachine(t, false) {
		testSpareHangsAtTheEnd(t)
	}
}

func TestRootOtherProgram(t *testing.T) {
	if onMachine(t, false) {
		testOtherProgram(t)
	}
}

func TestRootReopen(t *testing.T) {
	if onMachine(t, false) {
		testReopen(t)
	}
}

func TestRootAllKilled(t *testing.T) {
	if onMachine(t, false) {
		testAllKilled(t)
	}
}

func TestRootRepair(t *testing.T) {
	if onMachine(t, false) {
		testRepair(t)
	}
}

func TestRootServerKilled(t *testing.T) {
	if onMachine(t, false) {
		testServerKilled(t)
	}
}
