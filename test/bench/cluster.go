package main

import (
	"context"
	"net/http"

	"monoplane.dev"
	"monoplane.dev/client"
)

// cluster is a cluster inside this process, with clients on its wires.
type cluster struct {
	*monoplane.Cluster
	http *http.Client
	url  string
}

// startCluster starts a cluster with that many simulated nodes, -1 for none.
func startCluster(ctx context.Context, e *env, nodes int) (*cluster, error) {
	dir, err := e.tempDir()
	if err != nil {
		return nil, err
	}
	c, err := monoplane.Start(ctx, monoplane.Config{
		DataDir: dir, Listen: "127.0.0.1:0", GRPCListen: "127.0.0.1:0", Runtime: monoplane.FakeRuntime(), Nodes: nodes, NodeName: "node",
	})
	if err != nil {
		return nil, err
	}
	if err := c.WaitReady(ctx); err != nil {
		return nil, err
	}
	cfg, err := client.LoadConfig(c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	return &cluster{Cluster: c, http: httpClient(cfg.TLS), url: "https://" + c.Address()}, nil
}

func (c *cluster) podsURL() string { return c.url + "/api/v1/namespaces/default/pods" }
