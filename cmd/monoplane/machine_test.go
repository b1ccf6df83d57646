package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"monoplane.dev"
	"monoplane.dev/nodeagent/eviction"
	"monoplane.dev/nodeagent/shutdown"
)

// spec: STATIC-1, QOS-2
func TestMachineFlags(t *testing.T) {
	cfg, _, err := upConfig(t, "--eviction-hard=memory.available<1Gi,nodefs.available<5%",
		"--eviction-soft=pid.available=10%", "--eviction-soft-grace-period=pid.available=1m",
		"--eviction-max-pod-grace-period=9", "--system-reserved=cpu=500m", "--max-pods=5", "--pod-max-pids=99",
		"--shutdown-grace-period=30s", "--shutdown-grace-period-critical-pods=10s",
		"--manifest-url=https://h/x", "--manifest-url-header=A=b", "--memory-qos", "--seccomp-default",
		"--allowed-unsafe-sysctls=kernel.msg*,net.core.somaxconn")
	if err != nil {
		t.Fatal(err)
	}
	want := monoplane.MachineConfig{
		ManifestURL: "https://h/x", ManifestHeader: map[string][]string{"A": {"b"}}, MaxPods: 5, PodMaxPIDs: 99,
		MemoryQoS: true, SystemReserved: map[string]string{"cpu": "500m"}, SeccompDefault: true,
		AllowedUnsafeSysctls: []string{"kernel.msg*", "net.core.somaxconn"},
		Eviction: eviction.Settings{
			Hard: map[string]string{"memory.available": "1Gi", "nodefs.available": "5%"},
			Soft: map[string]string{"pid.available": "10%"}, SoftGrace: map[string]string{"pid.available": "1m"},
			MaxGrace: 9 * time.Second,
		},
		Shutdown: shutdown.Plan{
			{Priority: 0, Period: 20 * time.Second}, {Priority: 2_000_000_000, Period: 10 * time.Second},
		},
	}
	if !reflect.DeepEqual(cfg.Machine, want) {
		t.Errorf("got  %+v\nwant %+v", cfg.Machine, want)
	}
	if cfg, _, err = upConfig(t); err != nil || !reflect.DeepEqual(cfg.Machine, monoplane.MachineConfig{}) {
		t.Errorf("without flags: %+v, %v", cfg.Machine, err)
	}
	if _, _, err = upConfig(t, "--shutdown-grace-period=1s", "--shutdown-grace-period-critical-pods=2s"); err == nil ||
		!strings.Contains(err.Error(), "--shutdown-grace-period") {
		t.Errorf("more for critical pods than there is: %v", err)
	}
	if _, _, err = upConfig(t, "--eviction-hard=memory.available"); err == nil ||
		!strings.Contains(err.Error(), "--eviction-hard") {
		t.Errorf("no amount: %v", err)
	}
	for text, m := range map[string]monoplane.MachineConfig{
		"is not an http":  {ManifestURL: "x"},
		"cannot be":       {KubeReserved: map[string]string{"gpu": "1"}},
		"may be negative": {MaxPods: -1},
		`"vm.*" cannot be allowed: it is not known to be a pod's own`: {AllowedUnsafeSysctls: []string{"net.*", "vm.*"}},
		"is no signal": {Eviction: eviction.Settings{Hard: map[string]string{"x": "1"}}},
	} {
		_, err := monoplane.Start(t.Context(), monoplane.Config{DataDir: t.TempDir(), Machine: m})
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
	_, err = monoplane.Start(t.Context(), monoplane.Config{
		DataDir: t.TempDir(), Runtime: monoplane.FakeRuntime(), Machine: monoplane.MachineConfig{MaxPods: 1},
	})
	if err == nil || !strings.Contains(err.Error(), "simulated nodes have no machine") {
		t.Errorf("simulated: %v", err)
	}
}
