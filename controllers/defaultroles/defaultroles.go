// Package defaultroles is the controller that makes the default ClusterRoles and ClusterRoleBindings, when a server
// starts: those that are missing, and in those that are there, what is missing of their rules, subjects, labels and
// annotations. What somebody has added stays, and one with annotation rbac.authorization.kubernetes.io/autoupdate
// "false" is left alone. The API is served meanwhile.
//
// What it does not do: it looks at nothing after that, and puts no aggregated role together; see package
// clusterroleaggregation.
package defaultroles

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	metav1 "monoplane.dev/api/meta/v1"
	rbacv1 "monoplane.dev/api/rbac/v1"
	rbacv1rpc "monoplane.dev/api/rbac/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/object"
	"monoplane.dev/rules/rights"
)

const (
	// retryEvery is the time between two attempts.
	retryEvery = time.Second
	// atOnce is how many objects are written at the same time: enough for the store to write them together.
	atOnce = 32
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "default-roles",
		Grants: []rights.Grant{
			{Verbs: "list create update escalate bind", Resources: "clusterroles"},
			{Verbs: "list create update delete", Resources: "clusterrolebindings"},
		},
		EveryServer: true,
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Logger: e.Logger})
		},
	}
}

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:default-roles.
	Client *client.Client
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller makes the default roles. Run starts it.
type Controller struct {
	cfg  Config
	done atomic.Bool
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil {
		return nil, errors.New("defaultroles: no client")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controller{cfg: cfg}, nil
}

// Ready returns nil once the default roles are there.
func (c *Controller) Ready() error {
	if !c.done.Load() {
		return errors.New("default-roles controller: making the default roles")
	}
	return nil
}

// Run makes the roles, and returns ctx's error when ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	for {
		err := c.reconcile(ctx)
		if err == nil {
			c.done.Store(true)
			<-ctx.Done()
			return ctx.Err()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "making the default roles failed", slog.Any("error", err))
		select {
		case <-time.After(retryEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Controller) reconcile(ctx context.Context) error {
	roles, err := c.cfg.Client.ClusterRoles.List(ctx, &metav1.ListRequest{})
	if err != nil {
		return err
	}
	bindings, err := c.cfg.Client.ClusterRoleBindings.List(ctx, &metav1.ListRequest{})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, want := range append(Roles(), metricsRole()) {
		live := find(roles.GetItems(), want)
		g.Go(func() error { return c.role(ctx, live, want) })
	}
	for _, want := range Bindings() {
		live := find(bindings.GetItems(), want)
		g.Go(func() error { return c.binding(ctx, live, want) })
	}
	return g.Wait()
}

// find returns the object of a list with the name of another; nil for none.
func find[T object.Object](list []T, want T) (live T) {
	for _, o := range list {
		if o.GetMetadata().GetName() == want.GetMetadata().GetName() {
			return o
		}
	}
	return live
}

func (c *Controller) role(ctx context.Context, live, want *rbacv1.ClusterRole) error {
	if live == nil {
		_, err := c.cfg.Client.ClusterRoles.Create(ctx, &rbacv1rpc.CreateClusterRoleRequest{Object: want})
		return there(err)
	}
	next := object.Clone(live)
	if !complete(next.Metadata, want.Metadata) {
		return nil
	}
	if want.AggregationRule == nil {
		next.Rules = union(next.Rules, want.Rules)
	} else {
		if next.AggregationRule == nil {
			next.AggregationRule = &rbacv1.AggregationRule{}
		}
		next.AggregationRule.ClusterRoleSelectors = union(next.AggregationRule.ClusterRoleSelectors,
			want.AggregationRule.ClusterRoleSelectors)
	}
	if proto.Equal(next, live) {
		return nil
	}
	_, err := c.cfg.Client.ClusterRoles.Update(ctx, &rbacv1rpc.UpdateClusterRoleRequest{Object: next})
	return err
}

func (c *Controller) binding(ctx context.Context, live, want *rbacv1.ClusterRoleBinding) error {
	if live != nil {
		next := object.Clone(live)
		if !complete(next.Metadata, want.Metadata) {
			return nil
		}
		if proto.Equal(next.RoleRef, want.RoleRef) {
			next.Subjects = union(next.Subjects, want.Subjects)
			if proto.Equal(next, live) {
				return nil
			}
			_, err := c.cfg.Client.ClusterRoleBindings.Update(ctx, &rbacv1rpc.UpdateClusterRoleBindingRequest{Object: next})
			return err
		}
		// The role of a binding cannot be changed.
		uid := live.Metadata.GetUid()
		_, err := c.cfg.Client.ClusterRoleBindings.Delete(ctx, &metav1.DeleteRequest{Name: want.Metadata.Name,
			Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &uid}}})
		if err != nil {
			return err
		}
	}
	_, err := c.cfg.Client.ClusterRoleBindings.Create(ctx, &rbacv1rpc.CreateClusterRoleBindingRequest{Object: want})
	return there(err)
}

// there takes an object that another server has made meanwhile for made.
func there(err error) error {
	if apierrors.Is(err, apierrors.AlreadyExists) {
		return nil
	}
	return err
}

// complete adds the labels and annotations that are missing; false means that the object is to be left alone.
func complete(m, want *metav1.ObjectMeta) bool {
	if m.GetAnnotations()[autoUpdate] == "false" {
		return false
	}
	m.Labels, m.Annotations = added(m.Labels, want.Labels), added(m.Annotations, want.Annotations)
	return true
}

// added returns have with what want has besides.
func added(have, want map[string]string) map[string]string {
	all := maps.Clone(want)
	maps.Copy(all, have)
	return all
}

// union returns have with those of want that it lacks.
func union[T proto.Message](have, want []T) []T {
	for _, w := range want {
		if !slices.ContainsFunc(have, func(h T) bool { return proto.Equal(h, w) }) {
			have = append(have, w)
		}
	}
	return have
}
