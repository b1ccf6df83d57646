package main

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"monoplane.dev"
	"monoplane.dev/apiserver/auth"
)

func upConfig(t *testing.T, args ...string) (monoplane.Config, string, error) {
	t.Helper()
	flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
	var o upOptions
	o.add(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cfg, err := o.config(io.Discard, &log)
	if err == nil {
		auth.NewAudit(cfg.Logger).ForcedDeletion(t.Context(), "admin", "default/web", "u", "n")
		cfg.Logger.Warn("warned")
	}
	return cfg, log.String(), err
}

// No choice of level hides the audit.
//
// spec: DEL-8
func TestAuditIsAlwaysLogged(t *testing.T) {
	for _, level := range []string{"debug", "info", "warn", "error"} {
		_, log, err := upConfig(t, "--log-level", level)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log, `level=AUDIT msg="forced deletion" audit=forced-deletion user=admin pod=default/web`) {
			t.Errorf("at level %s: %q", level, log)
		}
		if warned := strings.Contains(log, "level=WARN msg=warned"); warned != (level != "error") {
			t.Errorf("at level %s: a warning is logged: %v", level, warned)
		}
	}
}

// spec: GC-4
func TestPodGCThreshold(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, 12500},
		{[]string{"--terminated-pod-gc-threshold=7"}, 7},
		{[]string{"--terminated-pod-gc-threshold=0"}, -1},
		{[]string{"--terminated-pod-gc-threshold=-3"}, -1},
	} {
		if cfg, _, err := upConfig(t, c.args...); err != nil || cfg.TerminatedPodGCThreshold != c.want {
			t.Errorf("%v: %d, %v, want %d", c.args, cfg.TerminatedPodGCThreshold, err, c.want)
		}
	}
}

func TestMaxEvents(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, 10_000}, {[]string{"--max-events=7"}, 7}, {[]string{"--max-events=0"}, -1}, {[]string{"--max-events=-3"}, -1},
	} {
		if cfg, _, err := upConfig(t, c.args...); err != nil || cfg.MaxEvents != c.want {
			t.Errorf("%v: %d, %v, want %d", c.args, cfg.MaxEvents, err, c.want)
		}
	}
}

func TestEtcdTLSFiles(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.pem")
	bad := filepath.Join(t.TempDir(), "bad.pem")
	if err := os.WriteFile(bad, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if cfg, _, err := upConfig(t); err != nil || cfg.EtcdTLS != nil {
		t.Errorf("without files: %v, %v", cfg.EtcdTLS, err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--etcd-cafile", none}, "--etcd-cafile: open " + none},
		{[]string{"--etcd-cafile", bad}, "--etcd-cafile: " + bad + " holds no PEM certificate"},
		{[]string{"--etcd-certfile", bad}, "--etcd-certfile and --etcd-keyfile belong together"},
		{[]string{"--etcd-certfile", bad, "--etcd-keyfile", bad},
			"--etcd-certfile, --etcd-keyfile: tls: failed to find any PEM data"},
	} {
		if _, _, err := upConfig(t, c.args...); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.args, err, c.want)
		}
	}
}

// Labels are given as a list, by a variable, and in the file as a list or a mapping.
func TestNodeLabels(t *testing.T) {
	want := map[string]string{"disk": "ssd", "topology.kubernetes.io/zone": "a", "empty": ""}
	cfg, _, err := upConfig(t, "--node-labels=disk=ssd,topology.kubernetes.io/zone=a", "--node-labels", "empty=",
		"--zones=2")
	if err != nil || !maps.Equal(cfg.NodeLabels, want) || cfg.Zones != 2 {
		t.Errorf("by flags: %v, %d zones, %v", cfg.NodeLabels, cfg.Zones, err)
	}
	for name, set := range map[string]func(flags *pflag.FlagSet) error{
		"by a variable": func(flags *pflag.FlagSet) error {
			return applyEnvironment(flags, func(k string) (string, bool) {
				return "disk=ssd,topology.kubernetes.io/zone=a,empty=", k == "MONOPLANE_NODE_LABELS"
			})
		},
		"by a mapping": func(flags *pflag.FlagSet) error {
			return applyFile(flags, writeFile(t, "node-labels:\n  disk: ssd\n  topology.kubernetes.io/zone: a\n  empty: ''\n"))
		},
		"by a list": func(flags *pflag.FlagSet) error {
			return applyFile(flags, writeFile(t, "node-labels: [disk=ssd, topology.kubernetes.io/zone=a, empty=]\n"))
		},
		"by a line": func(flags *pflag.FlagSet) error {
			return applyFile(flags, writeFile(t, "node-labels: disk=ssd,topology.kubernetes.io/zone=a,empty=\n"))
		},
	} {
		flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
		var o upOptions
		o.add(flags)
		if err := set(flags); err != nil || !maps.Equal(o.nodeLabels, want) {
			t.Errorf("%s: %v, %v", name, o.nodeLabels, err)
		}
	}
}

// spec: NODE-6
func TestRegisterWithTaints(t *testing.T) {
	cfg, _, err := upConfig(t, "--register-with-taints=dedicated=db:NoSchedule,x.io/a:NoExecute")
	if err != nil || len(cfg.NodeTaints) != 2 {
		t.Fatalf("%v, %v", cfg.NodeTaints, err)
	}
	if a, b := cfg.NodeTaints[0], cfg.NodeTaints[1]; a.GetKey() != "dedicated" || a.GetValue() != "db" ||
		a.GetEffect() != "NoSchedule" || b.GetKey() != "x.io/a" || b.GetValue() != "" || b.GetEffect() != "NoExecute" {
		t.Errorf("%v", cfg.NodeTaints)
	}
	_, _, err = upConfig(t, "--register-with-taints=a=b")
	if want := `--register-with-taints: taint "a=b" is not of the form key=value:effect`; err == nil ||
		err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestRangesOfServices(t *testing.T) {
	cfg, _, err := upConfig(t)
	if err != nil || cfg.ServiceClusterIPRange != "10.96.0.0/16" || cfg.ServiceNodePortRange != "30000-32767" {
		t.Errorf("without flags: %q, %q, %v", cfg.ServiceClusterIPRange, cfg.ServiceNodePortRange, err)
	}
	cfg, _, err = upConfig(t, "--cluster-domain=example.test")
	if err != nil || cfg.ClusterDomain != "example.test" {
		t.Errorf("with a domain: %q, %v", cfg.ClusterDomain, err)
	}
	cfg, _, err = upConfig(t, "--service-cluster-ip-range=10.1.0.0/16,fd00::/108", "--service-node-port-range=80-90")
	if err != nil || cfg.ServiceClusterIPRange != "10.1.0.0/16,fd00::/108" || cfg.ServiceNodePortRange != "80-90" {
		t.Errorf("with flags: %q, %q, %v", cfg.ServiceClusterIPRange, cfg.ServiceNodePortRange, err)
	}
}
