// Package generic reads and writes objects of any kind: for components that treat all kinds alike, and know one by its
// service alone (package api/services). What they get is object.Object; errors are read with package apierrors.
//
// The typed clients of package client are for everybody else.
package generic

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/object"
	"monoplane.dev/object/service"
)

// Client is a client of the kind of one service.
type Client struct {
	service *service.Service
	conn    grpc.ClientConnInterface
	stream  *grpc.StreamDesc
	// deleted and events are what Delete and Watch answer with.
	deleted, events protoreflect.MessageType
}

// New returns a client over conn. The service must have all the methods of a kind that is stored.
func New(s *service.Service, conn grpc.ClientConnInterface) (*Client, error) {
	c := &Client{service: s, conn: conn}
	for i := range s.Desc.Streams {
		if s.Desc.Streams[i].StreamName == "Watch" {
			c.stream = &s.Desc.Streams[i]
		}
	}
	if c.stream == nil || s.Events == nil {
		return nil, fmt.Errorf("%s: cannot be watched", s.Kind.Resource())
	}
	var err error
	if c.deleted, err = answer(s, "Delete"); err != nil {
		return nil, err
	}
	c.events, err = answer(s, "Watch")
	return c, err
}

func answer(s *service.Service, method protoreflect.Name) (protoreflect.MessageType, error) {
	m := s.Descriptor.Methods().ByName(method)
	if m == nil {
		return nil, fmt.Errorf("%s: no method %s", s.Kind.Resource(), method)
	}
	return protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
}

// Kind returns the kind.
func (c *Client) Kind() *object.Kind { return c.service.Kind }

func (c *Client) method(name string) string { return "/" + c.service.Desc.ServiceName + "/" + name }

// Get returns an object.
func (c *Client) Get(ctx context.Context, namespace, name string) (object.Object, error) {
	o := c.service.Kind.New()
	err := c.conn.Invoke(ctx, c.method("Get"), &metav1.GetRequest{Namespace: namespace, Name: name}, o)
	if err != nil {
		return nil, err
	}
	return o, nil
}

// List returns the selected objects.
func (c *Client) List(ctx context.Context, req *metav1.ListRequest) (object.List, error) {
	l := c.service.Kind.NewList(nil, nil)
	if err := c.conn.Invoke(ctx, c.method("List"), req, l); err != nil {
		return nil, err
	}
	return l, nil
}

// Delete deletes an object, or begins to.
func (c *Client) Delete(ctx context.Context, namespace, name string, opts *metav1.DeleteOptions) error {
	return c.conn.Invoke(ctx, c.method("Delete"),
		&metav1.DeleteRequest{Namespace: namespace, Name: name, Options: opts}, c.deleted.New().Interface())
}

// Patch changes an object and returns it.
func (c *Client) Patch(ctx context.Context, req *metav1.PatchRequest) (object.Object, error) {
	o := c.service.Kind.New()
	if err := c.conn.Invoke(ctx, c.method("Patch"), req, o); err != nil {
		return nil, err
	}
	return o, nil
}

// Watch starts a watch, as a cache.Source.
func (c *Client) Watch(
	ctx context.Context, req *metav1.WatchRequest,
) (next func() ([]cache.Event[object.Object], error), err error) {
	s, err := c.conn.NewStream(ctx, c.stream, c.method("Watch"))
	if err != nil {
		return nil, err
	}
	if err := s.SendMsg(req); err != nil {
		return nil, err
	}
	if err := s.CloseSend(); err != nil {
		return nil, err
	}
	return func() ([]cache.Event[object.Object], error) {
		m := c.events.New().Interface()
		if err := s.RecvMsg(m); err != nil {
			return nil, err
		}
		var out []cache.Event[object.Object]
		c.service.Events(m, func(e object.Event) bool {
			out = append(out, cache.Event[object.Object]{Type: e.Type, Object: e.Object, Status: e.Status})
			return true
		})
		return out, nil
	}, nil
}
