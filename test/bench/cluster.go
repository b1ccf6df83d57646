package main

import (
	"context"
	"errors"
	"net/http"

	"monoplane.dev"
	"monoplane.dev/client"
)

// cluster is a cluster inside this process, with clients on its wires.
type cluster struct {
	*monoplane.Cluster
	http *http.Client
	url  string
	// grpc speaks gRPC over TLS, as a program elsewhere does.
	grpc *client.Client
}

// startCluster starts a cluster with that many simulated nodes, -1 for none.
func startCluster(ctx context.Context, e *env, nodes int) (*cluster, error) {
	return startClusterOn(ctx, e, monoplane.FakeRuntime(), nodes)
}

// startClusterOn starts a cluster with that many nodes of a runtime.
func startClusterOn(ctx context.Context, e *env, on monoplane.Runtime, nodes int) (*cluster, error) {
	return startClusterAs(ctx, e, monoplane.Config{Runtime: on, Nodes: nodes})
}

// startClusterAs starts a cluster that is configured so, in a directory and at addresses of its own.
func startClusterAs(ctx context.Context, e *env, as monoplane.Config) (*cluster, error) {
	dir, err := e.tempDir()
	if err != nil {
		return nil, err
	}
	as.DataDir, as.Listen, as.GRPCListen, as.NodeName = dir, "127.0.0.1:0", "127.0.0.1:0", "node"
	c, err := monoplane.Start(ctx, as)
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
	remote, err := client.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &cluster{Cluster: c, http: httpClient(cfg.TLS), url: "https://" + c.Address(), grpc: remote}, nil
}

// Stop ends the cluster and its clients.
func (c *cluster) Stop(ctx context.Context) error {
	return errors.Join(c.grpc.Close(), c.Cluster.Stop(ctx))
}

func (c *cluster) podsURL() string { return c.url + "/api/v1/namespaces/default/pods" }
