// Package client is the Go client of the API: typed clients for every kind over one gRPC connection.
//
// A program of its own dials a server:
//
//	cfg, err := client.LoadConfig(path)   // a kubeconfig that monoplane wrote
//	c, err := client.Dial(ctx, cfg)
//	defer c.Close()
//	pod, err := c.Pods.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: "hello"})
//
// The components of the server use the same clients over an in-process connection (New with a connection of package
// client/inproc). Errors of every call are read with package apierrors. Package client/cache keeps a
// watch-fed copy of a kind.
//
// What the calls return is immutable when it came over an in-process connection: clone before changing it.
package client

import (
	"io"

	"google.golang.org/grpc"

	"monoplane.dev/api/clients"

	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
)

// Client holds a typed client for every service.
type Client struct {
	// Clients are those of the kinds. Events are events in the shape of core/v1, EventsV1 the same objects in that of
	// events.k8s.io/v1.
	clients.Clients

	// NodeStreams is what node agents listen on; other programs have no use for it.
	NodeStreams nodev1rpc.NodeStreamsClient
	// SchedulerStreams is what schedulers listen on; other programs have no use for it.
	SchedulerStreams schedulingv1rpc.SchedulerStreamsClient

	conn grpc.ClientConnInterface
}

// New returns the clients over conn, which the caller keeps and closes.
func New(conn grpc.ClientConnInterface) *Client {
	return &Client{
		Clients:          clients.New(conn),
		NodeStreams:      nodev1rpc.NewNodeStreamsClient(conn),
		SchedulerStreams: schedulingv1rpc.NewSchedulerStreamsClient(conn),
		conn:             conn,
	}
}

// Conn returns the connection, for services that Client does not name.
func (c *Client) Conn() grpc.ClientConnInterface { return c.conn }

// Close closes a connection that Dial made. A connection given to New that cannot be closed is left alone.
func (c *Client) Close() error {
	if closer, ok := c.conn.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}
