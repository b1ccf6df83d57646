package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"monoplane.dev"
	"monoplane.dev/apiserver/pki"

	metav1 "monoplane.dev/api/meta/v1"
	rbacv1 "monoplane.dev/api/rbac/v1"
	rbacv1rpc "monoplane.dev/api/rbac/v1/rpc"
)

// everyRequest is the policy that records who has asked for what, without the objects.
const everyRequest = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"

// benchGuarded measures what it costs that requests are judged by roles and recorded: those of a user whom one of many
// bindings gives the role edit, at a server with an audit log, beside the administrator's at a server without.
func benchGuarded(ctx context.Context, e *env) (err error) {
	dir, err := e.tempDir()
	if err != nil {
		return err
	}
	free, err := startCluster(ctx, e, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, free.Stop(context.WithoutCancel(ctx))) }()
	guarded, err := startClusterAs(ctx, e, monoplane.Config{
		Runtime: monoplane.FakeRuntime(), Nodes: -1,
		Audit: monoplane.AuditConfig{Policy: []byte(everyRequest), LogFile: filepath.Join(dir, "audit.log")},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guarded.Stop(context.WithoutCancel(ctx))) }()
	bindings, pods := e.size(1000), e.size(6400)
	jane, err := bound(ctx, guarded, bindings)
	if err != nil {
		return err
	}
	for _, c := range []*cluster{free, guarded} {
		if err := fill(ctx, c, "read", pods); err != nil {
			return err
		}
	}
	type asking func(ctx context.Context, h *http.Client, c *cluster, round, i int) error
	for _, of := range []struct {
		name               string
		clients, n, rounds int
		ask                asking
	}{
		{"get, 16 clients", 16, e.size(3000), 25,
			func(ctx context.Context, h *http.Client, c *cluster, _, _ int) error {
				_, err := call(ctx, h, http.MethodGet, c.podsURL()+"/"+podName("read", 0), nil, http.StatusOK)
				return err
			}},
		{fmt.Sprintf("list %d pods", pods), 1, 1, 25,
			func(ctx context.Context, h *http.Client, c *cluster, _, _ int) error {
				_, err := call(ctx, h, http.MethodGet, c.podsURL(), nil, http.StatusOK)
				return err
			}},
		{"create, 1 client", 1, e.size(300), 15,
			func(ctx context.Context, h *http.Client, c *cluster, round, i int) error {
				body := podJSON(podName(fmt.Sprint("guarded-", round), i), "none")
				_, err := call(ctx, h, http.MethodPost, c.podsURL(), body, http.StatusCreated)
				return err
			}},
	} {
		rate := func(h *http.Client, c *cluster) func(int) (float64, error) {
			return func(round int) (float64, error) {
				return drive(ctx, of.clients, of.n, func(ctx context.Context, _, i int) error {
					return of.ask(ctx, h, c, round, i)
				})
			}
		}
		p, err := paired(of.rounds, rate(jane, guarded), rate(free.http, free))
		if err != nil {
			return err
		}
		e.atLeast(fmt.Sprintf("%s, REST, one of %d bindings, recorded", of.name, bindings), p, "administrator", 0)
	}
	return nil
}

// bound returns a client of a user whom the last of n bindings in the namespace gives the role edit.
func bound(ctx context.Context, c *cluster, n int) (*http.Client, error) {
	const user = "jane"
	_, err := drive(ctx, 16, n, func(ctx context.Context, _, i int) error {
		who := fmt.Sprint("user-", i)
		if i == n-1 {
			who = user
		}
		_, err := c.Client().RoleBindings.Create(ctx, &rbacv1rpc.CreateRoleBindingRequest{Object: &rbacv1.RoleBinding{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: who},
			RoleRef:  &rbacv1.RoleRef{ApiGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "edit"},
			Subjects: []*rbacv1.Subject{{ApiGroup: "rbac.authorization.k8s.io", Kind: "User", Name: who}},
		}})
		return err
	})
	if err != nil {
		return nil, err
	}
	keys, err := pki.Ensure(filepath.Join(filepath.Dir(c.Kubeconfig()), "pki"), pki.Options{})
	if err != nil {
		return nil, err
	}
	id, err := keys.Issue(user, nil, time.Hour)
	if err != nil {
		return nil, err
	}
	config, err := clientTLS(id.CA, id.Cert, id.Key)
	if err != nil {
		return nil, err
	}
	h := httpClient(config)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for { // A controller makes the role.
		_, err := call(ctx, h, http.MethodGet, c.podsURL(), nil, http.StatusOK)
		if err == nil || ctx.Err() != nil {
			return h, err
		}
	}
}
