package monoplane

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/nodeagent"
	"monoplane.dev/nodeagent/machine"
)

func check(name string, run func() error) rest.Check {
	return rest.Check{Name: name, Run: func(context.Context) error { return run() }}
}

// startComponents starts the scheduler, the controllers and the agents, each with an identity of its own.
func (c *Cluster) startComponents(ctx, running context.Context, p *parts) error {
	start := func(name string, part controller.Component, err error) error {
		if err == nil {
			c.run(running, name, part.Run)
			c.checks = append(c.checks, check(name, part.Ready))
		}
		return err
	}
	as := &authn.User{Name: authn.SchedulerName, Groups: []string{authn.AuthenticatedGroup}}
	part, err := c.newScheduler(p.clientOf(as), p.metrics)
	if err := start("scheduler", part, err); err != nil {
		return err
	}
	for _, d := range controllers.All() {
		part, err := d.New(controller.Env{
			Client: p.controller(d.Name), Logger: c.cfg.Logger, Registerer: p.metrics,
			Settings: controller.Settings{TerminatedPodGCThreshold: c.cfg.TerminatedPodGCThreshold},
		})
		if err := start(d.Name, part, err); err != nil {
			return err
		}
	}
	for i, name := range c.cfg.nodeNames() {
		if slices.Contains(c.refusedNodes, name) {
			continue
		}
		if err := c.startAgent(ctx, running, p, i, name); err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}
	if c.cfg.Runtime.Simulated() {
		c.run(running, "watch of the nodes", func(ctx context.Context) error { return c.watchNodes(ctx, p.controller("simulatednodes")) })
	}
	c.checks = append(c.checks, check("shutdown", c.shutdown), check("nodes", c.nodesReady))
	return nil
}

// run runs f until running ends. Any other end of f ends the cluster.
func (c *Cluster) run(running context.Context, name string, f func(context.Context) error) {
	c.group.Go(func() error {
		err := f(running)
		if running.Err() != nil {
			return running.Err() // a wanted end, which Stop does not report
		}
		if err == nil {
			err = errors.New("ended by itself")
		}
		err = fmt.Errorf("%s: %w", name, err)
		c.finish(err)
		return err
	})
}

func (p *parts) controller(name string) *client.Client {
	return p.clientOf(&authn.User{Name: authn.ControllerPrefix + name, Groups: []string{authn.AuthenticatedGroup}})
}

// startAgent starts the agent of node number i.
func (c *Cluster) startAgent(ctx, running context.Context, p *parts, i int, name string) error {
	dir := filepath.Join(c.cfg.DataDir, "nodes", name)
	if !c.cfg.Runtime.Simulated() {
		if err := c.makeNodeDir(name); err != nil {
			return err
		}
	}
	conn, closeRuntime, err := c.cfg.Runtime.Open(ctx, name, dir, c.cfg.Logger)
	if err != nil {
		return err
	}
	c.onStop(func(context.Context) error { return closeRuntime() })
	api := p.clientOf(&authn.User{
		Name: authn.NodePrefix + name, Groups: []string{authn.NodesGroup, authn.AuthenticatedGroup}, UID: p.machine.Value,
	})
	// Many simulated nodes share the recorder of the first: each costs a queue.
	if p.recorder == nil || !c.cfg.Runtime.Simulated() {
		p.recorder = record.New(record.Config{Events: api.Events, Controller: "kubelet", Instance: name, Logger: c.cfg.Logger})
		c.run(running, "events of node "+name, p.recorder.Run)
	}
	cfg := nodeagent.Config{
		StateDir: dir, NodeName: name, Client: api, NodeWatched: c.cfg.Runtime.Simulated(),
		Runtime: runtimeapi.NewRuntimeServiceClient(conn), Images: runtimeapi.NewImageServiceClient(conn),
		Labels: c.cfg.labelsOf(i), Version: c.cfg.Version, Recorder: p.recorder.As(name), Starting: p.starting, Logger: c.cfg.Logger,
	}
	if _, shared := c.cfg.Runtime.(criRuntime); shared {
		cfg.Owner = p.machine.Owner // other clusters, or a kubelet, may have pods there
	}
	if c.cfg.Runtime.Simulated() {
		cfg.Simulated, cfg.NoStreams = true, true // there are no logs
		cfg.Machine = machine.Simulated(name, i)
	} else {
		cfg.PodLogDir = filepath.Join(dir, "logs")
		cfg.DataDir = c.cfg.DataDir
	}
	agent, err := nodeagent.New(cfg)
	if err != nil {
		return err
	}
	c.agents, c.nodes = append(c.agents, agent), append(c.nodes, name)
	c.run(running, "node "+name, agent.Run)
	return nil
}

// watchNodes tells agents that their Node was deleted: one watch does for all simulated nodes. spec: NODE-7
func (c *Cluster) watchNodes(ctx context.Context, api *client.Client) error {
	agents := make(map[string]*nodeagent.Agent, len(c.agents))
	for i, a := range c.agents {
		agents[c.nodes[i]] = a
	}
	nodes := cache.New(cache.Config[*corev1.Node]{Source: cache.Watch(api.Nodes.Watch), Logger: c.cfg.Logger})
	nodes.AddHandler(cache.Handler[*corev1.Node]{OnDelete: func(n *corev1.Node) {
		if a := agents[n.GetMetadata().GetName()]; a != nil {
			a.LookAtNode()
		}
	}})
	return nodes.Run(ctx)
}

// makeNodeDir makes what a node keeps its pods and logs in, or refuses it. What pods themselves have written is theirs.
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
	pods, err := dir.Make("pods")
	if err != nil {
		return err
	}
	return pods.CheckTree(2) // as far as the directories of the single pods
}

// nodesReady says which node is not ready yet.
func (c *Cluster) nodesReady() error {
	if err := c.Refused(); err != nil {
		return err
	}
	for i, a := range c.agents {
		select {
		case <-a.Ready():
		default:
			return fmt.Errorf("node %s is not ready", c.nodes[i])
		}
		if why := a.Unready(); why != "" {
			return fmt.Errorf("node %s is not ready: %s", c.nodes[i], why)
		}
	}
	return nil
}
