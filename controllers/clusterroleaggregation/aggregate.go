// Package clusterroleaggregation is the controller that puts ClusterRoles with an aggregationRule together: their
// rules are those of all roles that one of their selectors selects, in the order of the roles' names, each rule once.
// They follow every change of those roles, and what somebody else writes into them is undone.
//
// What it does not do: it changes nothing in roles without an aggregationRule.
package clusterroleaggregation

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/labels"

	rbacv1 "monoplane.dev/api/rbac/v1"
	rbacv1rpc "monoplane.dev/api/rbac/v1/rpc"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/object"
	"monoplane.dev/rules/labelselector"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name:   "clusterrole-aggregation",
		Grants: []rights.Grant{{Verbs: rights.Read + " update escalate", Resources: "clusterroles"}},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Logger: e.Logger})
		},
	}
}

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:clusterrole-aggregation.
	Client *client.Client
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller puts roles together. Run starts it.
type Controller struct {
	cfg    Config
	synced atomic.Bool
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil {
		return nil, errors.New("clusterroleaggregation: no client")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controller{cfg: cfg}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("clusterrole-aggregation controller: reading the roles")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error.
func (c *Controller) Run(ctx context.Context) error {
	roles := cache.New(cache.Config[*rbacv1.ClusterRole]{
		Source: cache.Watch(c.cfg.Client.ClusterRoles.Watch), Logger: c.cfg.Logger,
	})
	queue := loop.New(loop.Config[string]{
		Name: "clusterroleaggregation", Logger: c.cfg.Logger,
		Reconcile: func(ctx context.Context, name string) (time.Duration, error) {
			r, ok := roles.Get("", name)
			if !ok || r.GetAggregationRule() == nil || r.GetMetadata().GetDeletionTimestamp() != nil {
				return 0, nil
			}
			rules, err := Rules(r, roles.List("", nil))
			if err != nil || sameRules(rules, r.GetRules()) {
				return 0, err
			}
			next := object.Clone(r)
			next.Rules = rules
			_, err = c.cfg.Client.ClusterRoles.Update(ctx, &rbacv1rpc.UpdateClusterRoleRequest{Object: next})
			return 0, err
		},
	})
	// Any role may be part of any aggregated one, now or before the change.
	all := func(*rbacv1.ClusterRole) {
		for _, r := range roles.List("", nil) {
			if r.GetAggregationRule() != nil {
				queue.Add(r.GetMetadata().GetName())
			}
		}
	}
	roles.AddHandler(cache.Handler[*rbacv1.ClusterRole]{
		OnAdd: all, OnUpdate: func(_, r *rbacv1.ClusterRole) { all(r) }, OnDelete: all,
	})
	// Without all roles known, those that are put together would lose rules.
	return queue.Serve(ctx, &c.synced, []controller.Synced{roles}, roles.Run)
}

// Rules returns the rules that an aggregated role has to have among all roles.
func Rules(r *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]*rbacv1.PolicyRule, error) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *rbacv1.ClusterRole) int {
		return strings.Compare(a.GetMetadata().GetName(), b.GetMetadata().GetName())
	})
	var rules []*rbacv1.PolicyRule
	for _, s := range r.GetAggregationRule().GetClusterRoleSelectors() {
		selects, err := labelselector.Of(s)
		if err != nil {
			return nil, err
		}
		for _, part := range all {
			m := part.GetMetadata()
			if m.GetName() == r.GetMetadata().GetName() || !selects.Matches(labels.Set(m.GetLabels())) {
				continue
			}
			for _, rule := range part.GetRules() {
				if !slices.ContainsFunc(rules, func(have *rbacv1.PolicyRule) bool { return proto.Equal(have, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}

func sameRules(a, b []*rbacv1.PolicyRule) bool {
	return slices.EqualFunc(a, b, func(x, y *rbacv1.PolicyRule) bool { return proto.Equal(x, y) })
}
