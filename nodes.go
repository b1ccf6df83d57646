package monoplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers"
	"monoplane.dev/nodeagent"
	"monoplane.dev/nodeagent/hostinfo"
	"monoplane.dev/nodeagent/network"
	"monoplane.dev/nodeagent/runtime/stream"
	"monoplane.dev/rules/taints"
)

// nodeNames returns the names of the nodes: NodeName itself, or NodeName-0, NodeName-1 and so on.
func (cfg Config) nodeNames() []string {
	if cfg.Nodes == 1 {
		return []string{cfg.NodeName}
	}
	var names []string
	for i := range cfg.Nodes {
		names = append(names, fmt.Sprintf("%s-%d", cfg.NodeName, i))
	}
	return names
}

// checkZones returns what is wrong with spreading the nodes over zones.
func (cfg Config) checkZones() error {
	switch _, given := cfg.NodeLabels[hostinfo.ZoneLabel]; {
	case cfg.Zones == 0:
		return nil
	case cfg.Zones < 0:
		return fmt.Errorf("the number of zones is %d; it must be 0 or more", cfg.Zones)
	case !cfg.Runtime.Simulated():
		return fmt.Errorf("%d zones need the fake runtime: one machine is in one zone, which the node label %s gives",
			cfg.Zones, hostinfo.ZoneLabel)
	case cfg.Zones > cfg.Nodes:
		return fmt.Errorf("%d zones need as many nodes at least; there are %d", cfg.Zones, max(0, cfg.Nodes))
	case given:
		return fmt.Errorf("either zones or the node label %s", hostinfo.ZoneLabel)
	default:
		return nil
	}
}

// labelsOf returns the labels of node number i: those of all nodes, and its zone.
func (cfg Config) labelsOf(i int) map[string]string {
	if cfg.Zones == 0 {
		return cfg.NodeLabels
	}
	labels := maps.Clone(cfg.NodeLabels)
	if labels == nil {
		labels = make(map[string]string, 1)
	}
	labels[hostinfo.ZoneLabel] = fmt.Sprintf("zone-%d", i%cfg.Zones+1)
	return labels
}

// startAgent starts the agent of node number i.
func (c *Cluster) startAgent(ctx, running context.Context, p *parts, i int, name string) error {
	dir := c.nodeDir(name)
	if !c.cfg.Runtime.Simulated() {
		if err := c.makeNodeDir(name); err != nil {
			return err
		}
	}
	conn, closeRuntime, err := c.cfg.Runtime.Open(ctx, name, dir, c.cfg.Logger)
	if err != nil {
		return err
	}
	c.onStop(func(ctx context.Context) error {
		err := closeRuntime()
		if n, ok := c.cfg.Runtime.(Networked); ok && c.isEmpty() {
			// What has ended before may have taken all of the time, and nobody else takes the network away.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), networkGrace)
			defer cancel()
			err = errors.Join(err, n.Down(ctx, dir, c.cfg.Logger))
		}
		return err
	})
	api := p.clientOf(&authn.User{
		Name: authn.NodePrefix + name, Groups: []string{authn.NodesGroup, authn.AuthenticatedGroup}, UID: p.machine.Value,
	})
	// Many simulated nodes share the recorder of the first: each costs a queue.
	if p.recorder == nil || !c.cfg.Runtime.Simulated() {
		p.recorder = record.New(record.Config{Events: api.Events, Controller: "kubelet", Instance: name,
			Logger: c.cfg.Logger})
		c.run(running, "events of node "+name, p.recorder.Run)
	}
	m := &member{
		name: name, number: i, runtime: conn, api: api, recorder: p.recorder.On(name),
		turn: make(chan struct{}, 1), wake: make(chan struct{}, 1),
	}
	agent, err := c.newAgent(m)
	if err != nil {
		return err
	}
	m.begin(running, agent)
	c.members = append(c.members, m)
	if c.cfg.Runtime.Simulated() {
		p.usages.add(m)
	}
	c.run(running, "node "+name, m.run)
	if n, ok := c.cfg.Runtime.(Networked); ok && c.hasNetwork() {
		node := network.Node{Name: name, Client: p.controller(controllers.NodeNetwork), ClusterDomain: c.cfg.ClusterDomain,
			DNS: c.cfg.services.DNS()}
		node.API, _ = netip.ParseAddrPort(c.Address()) // not valid without a listener
		node.Reached = func(api []netip.AddrPort) {
			for _, at := range api {
				p.bundle.Cover(at.Addr())
			}
			c.inPods.Store(&api)
		}
		node.Warn = func(reason, note string) {
			m.recorder.EventFor(&corev1.ObjectReference{
				ApiVersion: corev1.NodeKind.APIVersion(), Kind: corev1.NodeKind.Kind, Name: name, Uid: name,
			}, record.Warning, reason, "Running", note)
		}
		c.run(running, "network of node "+name, func(ctx context.Context) error {
			return n.ServeNetwork(ctx, node, c.cfg.Logger)
		})
	}
	return nil
}

// serviceNames are the names by which pods with a network of their own reach the API server.
func (c *Cluster) serviceNames() []string {
	if !c.hasNetwork() {
		return nil
	}
	const service = "kubernetes.default.svc"
	return []string{"kubernetes", "kubernetes.default", service, service + "." + c.cfg.ClusterDomain,
		c.cfg.services.API().String()}
}

// hasNetwork tells whether pods have a network of their own.
func (c *Cluster) hasNetwork() bool {
	n, ok := c.cfg.Runtime.(Networked)
	return ok && n.HasNetwork()
}

func (c *Cluster) nodeDir(name string) string { return filepath.Join(c.cfg.DataDir, "nodes", name) }

// newAgent returns an agent of a node.
func (c *Cluster) newAgent(m *member) (*nodeagent.Agent, error) {
	dir := c.nodeDir(m.name)
	cfg := nodeagent.Config{
		StateDir: dir, NodeName: m.name, Client: m.api, NodeWatched: c.cfg.Runtime.Simulated(),
		Runtime: runtimeapi.NewRuntimeServiceClient(m.runtime), Images: runtimeapi.NewImageServiceClient(m.runtime),
		Labels: c.cfg.labelsOf(m.number), Taints: c.cfg.NodeTaints, Recorder: m.recorder,
		Version:  kubeletVersion(c.cfg.Version),
		Starting: c.starting, HeartbeatInterval: c.cfg.NodeLifecycle.Heartbeat(),
		LeaseDuration: 4 * c.cfg.NodeLifecycle.Heartbeat(), ClusterDomain: c.cfg.ClusterDomain, Logger: c.cfg.Logger,
	}
	if s, ok := m.runtime.(stream.Runtime); ok {
		cfg.Streams = s
	}
	if _, shared := c.cfg.Runtime.(criRuntime); shared {
		cfg.Owner = c.owner // other clusters, or a kubelet, may have pods there
	}
	if c.cfg.Runtime.Simulated() {
		cfg.Simulated, cfg.NoStreams = true, true // there are no logs
		cfg.Machine = hostinfo.Simulated(m.name, m.number)
	} else {
		cfg.PodLogDir, cfg.PodsDir = filepath.Join(dir, "logs"), filepath.Join(dir, "pods-data")
		cfg.VolumesDir, _ = filepath.Abs(filepath.Join(dir, "volumes")) // "" where the process does not know where it is
		cfg.SeccompDir = filepath.Join(dir, "seccomp")
		cfg.DataDir = c.cfg.DataDir
		cfg.APIServer, _ = netip.ParseAddrPort(c.Address()) // not valid without a listener
		if r, ok := c.cfg.Runtime.(Remover); ok && os.Geteuid() != 0 {
			cfg.Remove = r.Remove
		}
		if r, ok := c.cfg.Runtime.(Giver); ok && os.Geteuid() != 0 {
			cfg.Give = r.Give
		}
		if r, ok := c.cfg.Runtime.(Measurer); ok && os.Geteuid() != 0 {
			cfg.Measure = r.Measure
		}
		if r, ok := c.cfg.Runtime.(Limited); ok {
			cfg.Limits = r.Limits()
		}
		if n, ok := c.cfg.Runtime.(Networked); ok && c.hasNetwork() {
			cfg.Dial = n.DialPod
			cfg.ClusterDNS = append(cfg.ClusterDNS, c.cfg.services.DNS())
			if r, ok := n.(Apart); ok {
				cfg.MachineReachesServices = r.MachineReachesServices
			}
			if cfg.APIServer.IsValid() {
				cfg.APIService = netip.AddrPortFrom(c.cfg.services.API(), 443)
			}
		}
		c.cfg.Machine.apply(&cfg, dir)
	}
	return nodeagent.New(cfg)
}

// watchNodes tells agents that their Node was deleted: one watch does for all simulated nodes. spec: NODE-7
func (c *Cluster) watchNodes(ctx context.Context, api *client.Client) error {
	members := make(map[string]*member, len(c.members))
	for _, m := range c.members {
		members[m.name] = m
	}
	nodes := cache.New(cache.Config[*corev1.Node]{Source: cache.Watch(api.Nodes.Watch), Logger: c.cfg.Logger})
	nodes.AddHandler(cache.Handler[*corev1.Node]{OnDelete: func(n *corev1.Node) {
		if a := agentOf(members, n); a != nil {
			a.LookAtNode()
		}
	}})
	return nodes.Run(ctx)
}

// settle says whether a node that is ready takes pods: it may have been stopped in order, or have been lost, and has
// the taint for that until the controller has seen that it is back. Once is enough.
func (c *Cluster) settle(m *member) error {
	if m.settled.Load() {
		return nil
	}
	n, err := c.shared.Nodes.Get(c.running, &metav1.GetRequest{Name: m.name, ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("node %s: %w", m.name, err)
	}
	for _, key := range []string{taints.NotReady, taints.Unreachable} {
		if taints.Find(n.GetSpec().GetTaints(), key, taints.NoSchedule) != nil {
			return fmt.Errorf("node %s takes no pods yet: it has the taint %s of the time before", m.name, key)
		}
	}
	m.settled.Store(true)
	return nil
}

// makeNodeDir makes what a node keeps its pods and logs in, or refuses it. What pods themselves have written is
// theirs.
func (c *Cluster) makeNodeDir(name string) error {
	dir := c.dir
	for _, part := range []string{"nodes", name} {
		var err error
		if dir, err = dir.Make(part); err != nil {
			return err
		}
	}
	if _, err := dir.Make("logs"); err != nil {
		return err
	}
	if _, err := dir.Make("manifests"); err != nil { // who writes there starts pods
		return err
	}
	pods, err := dir.Make("pods")
	if err != nil {
		return err
	}
	return pods.CheckTree(2) // as far as the directories of the single pods
}

// nodesReady says which node is not ready yet. Those that were stopped are not missed.
func (c *Cluster) nodesReady() error {
	if err := c.Refused(); err != nil {
		return err
	}
	for _, m := range c.members {
		a, silent := m.current()
		if silent {
			continue
		}
		select {
		case <-a.Ready():
		default:
			return fmt.Errorf("node %s is not ready", m.name)
		}
		if why := a.Unready(); why != "" {
			return fmt.Errorf("node %s is not ready: %s", m.name, why)
		}
		if err := c.settle(m); err != nil {
			return err
		}
	}
	return nil
}
