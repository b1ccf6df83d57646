package monoplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"

	"golang.org/x/sync/errgroup"

	"monoplane.dev/apiserver/kinds/core/pod"
	"monoplane.dev/nodeagent"
	"monoplane.dev/nodeagent/eviction"
	"monoplane.dev/nodeagent/gc"
	"monoplane.dev/nodeagent/oom"
	"monoplane.dev/nodeagent/pullrecord"
	"monoplane.dev/nodeagent/shutdown"
	"monoplane.dev/nodeagent/shutdown/logind"
	"monoplane.dev/rules/sysctls"
)

// MachineConfig says what an agent does for its machine. The zero value is a good default.
type MachineConfig struct {
	// ManifestPath is a directory with manifests of static pods, or one manifest; manifests in the node's own directory
	// below DataDir by default. It need not exist. spec: STATIC-1
	ManifestPath string
	// ManifestURL answers with a manifest, Pod or PodList, and is asked every 20 s with ManifestHeader.
	ManifestURL string
	// ManifestHeader may be nil.
	ManifestHeader http.Header

	// SystemReserved and KubeReserved are amounts, by resource (cpu, memory, ephemeral-storage, pid), that pods may not
	// use: the node has so much less to allocate.
	SystemReserved, KubeReserved map[string]string
	// MaxPods is how many pods the node takes, 110 by default; PodsPerCore bounds it further when positive.
	MaxPods, PodsPerCore int
	// PodMaxPIDs is how many processes and threads each pod may have; any number when not positive.
	PodMaxPIDs int64
	// AllowedUnsafeSysctls are the kernel parameters that pods may set beyond the safe ones: names such as
	// net.core.somaxconn, and beginnings with an asterisk such as kernel.msg*. Only what belongs to a pod alone can be
	// allowed: kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.* and net.*. spec: SEC-1
	AllowedUnsafeSysctls []string
	// Eviction says when the machine has too little left of something, and what happens then. spec: QOS-2
	Eviction eviction.Settings
	// ImageGC says when images that nobody uses are removed.
	ImageGC gc.Policy
	// PullCredentials says for which images on a node it counts with whose credentials they came there.
	PullCredentials pullrecord.Policy
	// MemoryQoS has the memory that containers request reserved, and slows them down before they reach their limit, where
	// the machine has cgroup2 and the runtime can. spec: QOS-3
	MemoryQoS bool
	// SeccompDefault gives containers that name no seccomp profile the one of the runtime, as RuntimeDefault does, in
	// place of none. Privileged ones have none, as in Kubernetes.
	SeccompDefault bool

	// Shutdown says how much time the pods have when the machine goes down, by priority; see Cluster.ShutDownNodes.
	Shutdown shutdown.Plan
}

// checkMachine returns what is wrong with Machine.
func (cfg Config) checkMachine() error {
	m := &cfg.Machine
	if cfg.Runtime.Simulated() {
		if !reflect.ValueOf(*m).IsZero() {
			return errors.New("simulated nodes have no machine, so that nothing can be said of it")
		}
		return nil
	}
	var errs []error
	if u, err := url.Parse(m.ManifestURL); m.ManifestURL != "" &&
		(err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		errs = append(errs, fmt.Errorf("the manifest URL %q is not an http or https URL", m.ManifestURL))
	}
	if m.MaxPods < 0 || m.PodsPerCore < 0 {
		errs = append(errs, fmt.Errorf("the most pods are %d, and %d for each cpu; neither may be negative", m.MaxPods,
			m.PodsPerCore))
	}
	if p := m.ImageGC.Complete(); p.High < 0 || p.High > 100 || p.Low < 0 || p.Low > p.High {
		errs = append(errs, fmt.Errorf("images are removed from %d %% down to %d %% of their disk; both must be from 0 to "+
			"100, and the second not above the first", p.High, p.Low))
	}
	_, err := m.Eviction.Thresholds()
	_, unsafe := sysctls.Allow("", m.AllowedUnsafeSysctls)
	return errors.Join(append(errs, err, unsafe, m.Shutdown.Check(), m.PullCredentials.Check(),
		nodeagent.CheckReserved(m.SystemReserved), nodeagent.CheckReserved(m.KubeReserved))...)
}

// apply sets what it says for the agent whose directory is dir.
func (m *MachineConfig) apply(cfg *nodeagent.Config, dir string) {
	cfg.ManifestDir, cfg.ManifestURL, cfg.ManifestHeader = m.ManifestPath, m.ManifestURL, m.ManifestHeader
	if cfg.ManifestDir == "" {
		cfg.ManifestDir = filepath.Join(dir, "manifests")
	}
	cfg.CompletePod, cfg.KernelLog = pod.Complete, oom.Log
	cfg.SystemReserved, cfg.KubeReserved = m.SystemReserved, m.KubeReserved
	cfg.MaxPods, cfg.PodsPerCore, cfg.PodMaxPIDs = m.MaxPods, m.PodsPerCore, m.PodMaxPIDs
	cfg.AllowedUnsafeSysctls = m.AllowedUnsafeSysctls
	cfg.Eviction, cfg.ImageGC, cfg.Shutdown, cfg.MemoryQoS = m.Eviction, m.ImageGC, m.Shutdown, m.MemoryQoS
	cfg.PullCredentials, cfg.SeccompDefault = m.PullCredentials, m.SeccompDefault
}

// ShutDownNodes ends the pods for good because the machine is about to go down: in the order of their priority, within
// the time that Machine.Shutdown gives. They fail with reason Terminated, and are not run again by the next start,
// other than after StopPods. Without such a time nothing happens. The cluster goes on; Stop ends it.
//
// Where systemd-logind says that the machine goes down, the cluster does this by itself, and logind waits for it.
func (c *Cluster) ShutDownNodes(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, m := range c.members {
		g.Go(func() error {
			a, err := c.worker(m)
			if a == nil {
				return err
			}
			return a.ShutDown(ctx)
		})
	}
	return g.Wait()
}

// watchMachine ends the pods when systemd-logind says that the machine goes down.
func (c *Cluster) watchMachine(running context.Context) {
	plan := c.cfg.Machine.Shutdown
	if len(plan) == 0 {
		return
	}
	w := logind.New(logind.Config{
		Down: c.ShutDownNodes, Period: plan.Total(), Logger: c.cfg.Logger,
		Up: func() {
			for _, m := range c.members {
				if a, silent := m.current(); !silent {
					a.StayUp()
				}
			}
		},
	})
	c.run(running, "watch of the machine's shutdown", w.Run)
}
