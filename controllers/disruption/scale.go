package disruption

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"

	appsv1 "monoplane.dev/api/apps/v1"
	autoscalingv1 "monoplane.dev/api/autoscaling/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/api/services"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/object"
)

// scales tells how many replicas controllers are to have: whatever has a subresource scale.
type scales struct {
	conn grpc.ClientConnInterface
	// replicaSets says which of them belong to a Deployment, whose number counts then.
	replicaSets *cache.Cache[*appsv1.ReplicaSet]
	// methods are those that read the scale of a kind.
	methods map[groupKind]string
	// known are all kinds.
	known map[groupKind]*object.Kind
}

type groupKind struct{ group, kind string }

func newScales(conn grpc.ClientConnInterface, replicaSets *cache.Cache[*appsv1.ReplicaSet]) *scales {
	s := &scales{
		conn: conn, replicaSets: replicaSets, methods: map[groupKind]string{}, known: map[groupKind]*object.Kind{},
	}
	for _, svc := range services.All() {
		k := groupKind{svc.Kind.Group, svc.Kind.Kind}
		s.known[k] = svc.Kind
		if svc.Descriptor.Methods().ByName("GetScale") != nil {
			s.methods[k] = "/" + svc.Desc.ServiceName + "/GetScale"
		}
	}
	return s
}

// of returns how many replicas the controllers of pods are to have in all, and the pods that have none. The error says
// whose number cannot be told.
func (s *scales) of(ctx context.Context, pods []*corev1.Pod) (sum int32, unmanaged []string, err error) {
	seen, counted := map[string]bool{}, map[string]bool{}
	for _, p := range pods {
		m := p.GetMetadata()
		ref := controller.ManagerOf(p)
		switch {
		case ref == nil:
			unmanaged = append(unmanaged, m.GetName())
			continue
		case seen[ref.GetUid()]:
			continue
		}
		seen[ref.GetUid()] = true
		uid, replicas, err := s.above(ctx, m.GetNamespace(), ref)
		if err != nil {
			return 0, nil, err
		}
		if uid == "" {
			return 0, nil, fmt.Errorf("found no controllers for pod %q", m.GetName())
		}
		if !counted[uid] {
			counted[uid] = true
			sum += replicas
		}
	}
	return sum, unmanaged, nil
}

// above returns the uid and the replicas of the controller that counts for a pod with the reference ref: the
// Deployment of a ReplicaSet that has one, or else what ref names. The uid is empty when there is no such controller.
func (s *scales) above(
	ctx context.Context, namespace string, ref *metav1.OwnerReference,
) (uid string, replicas int32, err error) {
	if kindOf(ref) == (groupKind{appsv1.ReplicaSetKind.Group, appsv1.ReplicaSetKind.Kind}) {
		set, ok := s.replicaSets.Get(namespace, ref.GetName())
		if ok && set.GetMetadata().GetUid() == ref.GetUid() {
			deployment := controller.ManagerOf(set)
			if kindOf(deployment) == (groupKind{appsv1.DeploymentKind.Group, appsv1.DeploymentKind.Kind}) {
				uid, replicas, err := s.read(ctx, namespace, deployment)
				if uid != "" || err != nil {
					return uid, replicas, err
				}
			}
		}
	}
	return s.read(ctx, namespace, ref)
}

// read asks for the scale of one object; the uid is empty when it is not there, or another one has its name.
func (s *scales) read(
	ctx context.Context, namespace string, ref *metav1.OwnerReference,
) (uid string, replicas int32, err error) {
	k := kindOf(ref)
	method := s.methods[k]
	switch {
	case method != "":
	case s.known[k] != nil:
		return "", 0, fmt.Errorf("%s does not implement the scale subresource", s.known[k].Resource())
	default:
		return "", 0, fmt.Errorf("no matches for kind %q in version %q", ref.GetKind(), ref.GetApiVersion())
	}
	out := &autoscalingv1.Scale{}
	err = s.conn.Invoke(ctx, method, &metav1.GetRequest{Namespace: namespace, Name: ref.GetName()}, out)
	if apierrors.Is(err, apierrors.NotFound) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, fmt.Errorf("read the scale of %s %s/%s: %w", k.kind, namespace, ref.GetName(), err)
	}
	if out.GetMetadata().GetUid() != ref.GetUid() {
		return "", 0, nil
	}
	return ref.GetUid(), out.GetSpec().GetReplicas(), nil
}

// kindOf returns what a reference names; nothing for none.
func kindOf(ref *metav1.OwnerReference) groupKind {
	group, _, ok := strings.Cut(ref.GetApiVersion(), "/")
	if !ok {
		group = ""
	}
	return groupKind{group, ref.GetKind()}
}
