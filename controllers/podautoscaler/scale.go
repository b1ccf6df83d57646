package podautoscaler

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime/schema"

	autoscalingv1 "monoplane.dev/api/autoscaling/v1"
	autoscalingv2 "monoplane.dev/api/autoscaling/v2"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/api/services"
	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// scales reads and writes the scale of objects of any kind that has one.
type scales struct {
	conn grpc.ClientConnInterface
	// services are those of kinds with a subresource scale.
	services map[schema.GroupKind]string
	// known are all kinds.
	known map[schema.GroupKind]*object.Kind
}

func newScales(conn grpc.ClientConnInterface) *scales {
	s := &scales{
		conn: conn, services: map[schema.GroupKind]string{}, known: map[schema.GroupKind]*object.Kind{},
	}
	for _, svc := range services.All() {
		k := schema.GroupKind{Group: svc.Kind.Group, Kind: svc.Kind.Kind}
		s.known[k] = svc.Kind
		if svc.Descriptor.Methods().ByName("GetScale") != nil {
			s.services[k] = "/" + svc.Desc.ServiceName
		}
	}
	return s
}

// target is an object that is scaled.
type target struct {
	*scales
	service, namespace, name string
}

// target returns the object that a reference names.
func (s *scales) target(namespace string, ref *autoscalingv2.CrossVersionObjectReference) (*target, error) {
	gv, err := schema.ParseGroupVersion(ref.GetApiVersion())
	if err != nil {
		return nil, err
	}
	k := schema.GroupKind{Group: gv.Group, Kind: ref.GetKind()}
	service := s.services[k]
	switch {
	case service != "":
		return &target{s, service, namespace, ref.GetName()}, nil
	case s.known[k] != nil:
		return nil, fmt.Errorf("%s does not implement the scale subresource", s.known[k].Resource())
	default:
		return nil, fmt.Errorf("no matches for kind %q in group %q", k.Kind, k.Group)
	}
}

func (t *target) read(ctx context.Context) (*autoscalingv1.Scale, error) {
	out := &autoscalingv1.Scale{}
	req := &metav1.GetRequest{Namespace: t.namespace, Name: t.name}
	if err := t.conn.Invoke(ctx, t.service+"/GetScale", req, out); err != nil {
		return nil, apierrors.From(err)
	}
	return out, nil
}

// tries is how often a scale is written that others write at the same time: its object's status changes often.
const tries = 5

// write scales the object as it was seen. When only other things of it have changed it tries again; when it was scaled
// meanwhile the error is a Conflict.
func (t *target) write(ctx context.Context, seen *autoscalingv1.Scale, replicas int32) error {
	for try := 1; ; try++ {
		err := t.patch(ctx, seen, replicas)
		if !apierrors.Is(err, apierrors.Conflict) || try == tries {
			return err
		}
		now, readErr := t.read(ctx)
		if readErr != nil || now.GetMetadata().GetUid() != seen.GetMetadata().GetUid() ||
			now.GetSpec().GetReplicas() != seen.GetSpec().GetReplicas() {
			return err
		}
		seen = now
	}
}

func (t *target) patch(ctx context.Context, seen *autoscalingv1.Scale, replicas int32) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]string{
			"uid": seen.GetMetadata().GetUid(), "resourceVersion": seen.GetMetadata().GetResourceVersion(),
		},
		"spec": map[string]int32{"replicas": replicas},
	})
	if err != nil {
		return err
	}
	err = t.conn.Invoke(ctx, t.service+"/PatchScale", &metav1.PatchRequest{
		Namespace: t.namespace, Name: t.name, PatchType: "application/merge-patch+json", Patch: patch,
	}, &autoscalingv1.Scale{})
	if err != nil {
		return apierrors.From(err)
	}
	return nil
}
