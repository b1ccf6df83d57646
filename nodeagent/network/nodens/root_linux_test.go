//go:build rootonly

package nodens_test

import (
	"testing"

	"monoplane.dev/nodeagent/network/nodens"
)

// spec: NET-1
func TestRootPods(t *testing.T) {
	asRoot(t, func(t *testing.T) { testPods(t, nodens.EgressMasquerade) })
}

func TestRootNFTables(t *testing.T)     { asRoot(t, testNFTables) }
func TestRootManyServices(t *testing.T) { asRoot(t, testManyServices) }
func TestRootRefusals(t *testing.T)     { asRoot(t, testRefusals) }
func TestRootNobody(t *testing.T)       { asRoot(t, testNobody) }
func TestRootSuccessor(t *testing.T)    { asRoot(t, testSuccessor) }
func TestRootSpoofing(t *testing.T)     { asRoot(t, testSpoofing) }
func TestRootKnownSources(t *testing.T) { asRoot(t, testKnownSources) }
func TestRootPorts(t *testing.T)        { asRoot(t, testPorts) }

func TestRootPortsOfFamilies(t *testing.T) {
	asRoot(t, func(t *testing.T) { testPortsOfFamilies(t) }, strangeClients)
}

func TestRootHostPortsOfPods(t *testing.T)         { asRoot(t, testHostPortsOfPods) }
func TestRootHostPortsOfPodsEnd(t *testing.T)      { asRoot(t, testHostPortsOfPodsEnd) }
func TestRootHostPortsOfPodsLapse(t *testing.T)    { asRoot(t, testHostPortsOfPodsLapse) }
func TestRootHostPortsOfPodsRepaired(t *testing.T) { asRoot(t, testHostPortsOfPodsRepaired) }
func TestRootHostPortsAtAddresses(t *testing.T)    { asRoot(t, testHostPortsAtAddresses) }
func TestRootHostPortsOfOneFamily(t *testing.T)    { asRoot(t, testHostPortsOfOneFamily) }
func TestRootHostPortsBesideServices(t *testing.T) { asRoot(t, testHostPortsBesideServices) }

func TestRootHelperKilled(t *testing.T)       { asRoot(t, testHelperKilled) }
func TestRootHelperHangs(t *testing.T)        { asRoot(t, testHelperHangs) }
func TestRootBothHang(t *testing.T)           { asRoot(t, testBothHang) }
func TestRootSpareHangsAtTheEnd(t *testing.T) { asRoot(t, testSpareHangsAtTheEnd) }
func TestRootOtherProgram(t *testing.T)       { asRoot(t, testOtherProgram) }
func TestRootReopen(t *testing.T)             { asRoot(t, testReopen) }
func TestRootAllKilled(t *testing.T)          { asRoot(t, testAllKilled) }
func TestRootRepair(t *testing.T)             { asRoot(t, testRepair) }
func TestRootServerKilled(t *testing.T)       { asRoot(t, testServerKilled) }
