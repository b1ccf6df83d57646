package registry

import (
	"context"

	"google.golang.org/grpc/metadata"

	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/fieldmanager"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
)

// Names by which tools know the parts of a control plane as managers of fields.
const (
	agentManager      = "kubelet"
	controllerManager = "kube-controller-manager"
	schedulerManager  = "kube-scheduler"
)

// managerOf returns who writes: who the request says, else the component that makes it, else the program that the
// client says it is.
func managerOf(ctx context.Context, stated string) string {
	if stated != "" {
		return stated
	}
	switch auth.From(ctx).Class {
	case auth.Node:
		return agentManager
	case auth.Controller:
		return controllerManager
	case auth.Scheduler:
		return schedulerManager
	}
	if agents := metadata.ValueFromIncomingContext(ctx, "user-agent"); len(agents) > 0 {
		return fieldmanager.Program(agents[0])
	}
	return ""
}

// write describes a write for those who own fields.
func (r *Registry) write(ctx context.Context, manager, subresource string) fieldmanager.Write {
	w := fieldmanager.Write{
		Manager: managerOf(ctx, manager), APIVersion: r.kind.APIVersion(), Subresource: subresource,
		Time: value.Time(r.deps.Clock.Now()),
	}
	if _, ok := r.strategy.Resources["status"]; ok && subresource == "" {
		w.Skip = statusOnly
	}
	return w
}

// statusOnly is what a write of the object itself has no say in where the status is written on its own.
var statusOnly = []string{"status"}

// track writes to next, which is to replace live, who owns its fields from now on. Asked is what the request
// describes.
func (r *Registry) track(ctx context.Context, asked, live, next object.Object, c change) {
	if c.applied != nil {
		meta(next).ManagedFields = unchanged(live, next, *c.applied)
		return
	}
	before := live.GetMetadata().GetManagedFields()
	if c.subresource == "" {
		before = fieldmanager.Asked(asked.GetMetadata().GetManagedFields(), before)
	}
	meta(next).ManagedFields = r.owners.Update(live, next, before, r.write(ctx, c.manager, c.subresource))
}
