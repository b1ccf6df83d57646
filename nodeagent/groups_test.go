package nodeagent

import "testing"

// What containerd tells of its configuration says who manages cgroups, if its default runtime is runc.
func TestDriverOf(t *testing.T) {
	for config, want := range map[string][2]bool{
		"":    {},
		"{}":  {},
		"[]]": {},
		`{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"runtimeType":"io.containerd.runc.v2",` +
			`"options":{"SystemdCgroup":true}},"kata":{}}}}`: {true, true},
		`{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"runtimeType":"io.containerd.runc.v2",` +
			`"options":null}}}}`: {false, true},
		`{"containerd":{"defaultRuntimeName":"vm","runtimes":{"vm":{"runtimeType":"io.containerd.kata.v2"}}}}`: {},
		`{"containerd":{"defaultRuntimeName":"absent","runtimes":{}}}`:                                         {},
	} {
		if systemd, known := driverOf(config); systemd != want[0] || known != want[1] {
			t.Errorf("%s: %v, %v", config, systemd, known)
		}
	}
}
