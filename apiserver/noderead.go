package apiserver

import (
	"context"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/fields"

	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/kinds/core/nodekey"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/object/storage"
	"monoplane.dev/rules/podrefs"

	corev1 "monoplane.dev/api/core/v1"
)

// mayNodeRead lets an agent read what the pods of its node need, and nothing else of that kind: their ConfigMaps and
// Secrets, their service accounts, their runtime classes, their claims and the volumes of those, with their Secrets.
// Pods that were bound to another machine of the same name are not its own (spec: NODE-7, OBJ-15). The name decides,
// before anything is read, so that an agent learns nothing of others.
//
// In Kubernetes a watch is judged when it begins and goes on for up to an hour. Here it is judged again whenever there
// is something to send (authorizedStream), so that nothing is sent that the agent may not read any more.
func (s *Server) mayNodeRead(ctx context.Context, id auth.Identity, a auth.Attributes) error {
	if a.Subresource != "" {
		return nil
	}
	switch a.Verb {
	case "get":
	case "list", "watch":
		if a.Resource != "configmaps" && a.Resource != "secrets" {
			return nil
		}
		if a.Name = selected(a.FieldSelector); a.Name == "" || a.Namespace == "" {
			return auth.Denied(id, a, "an agent must name a namespace and select metadata.name=NAME")
		}
	default:
		return nil
	}
	needs := s.needs(ctx, a)
	if needs == nil {
		return nil
	}
	yes, err := s.ofItsPods(ctx, id, a.Namespace, needs)
	if err == nil && !yes && a.Resource == "secrets" {
		yes, err = s.ofItsPods(ctx, id, "", func(p *corev1.Pod) bool { return s.usesSecretOfVolume(ctx, p, a) })
	}
	if err == nil && !yes {
		err = auth.Denied(id, a, "no relationship found between node '"+id.Node+"' and this object")
	}
	return err
}

// needs returns a function that says whether a pod needs what a request asks for; nil when that is not to be asked.
func (s *Server) needs(ctx context.Context, a auth.Attributes) func(*corev1.Pod) bool {
	switch a.Resource {
	case "configmaps":
		return func(p *corev1.Pod) bool { return among(podrefs.ConfigMaps(p.GetSpec()), a.Name) }
	case "secrets":
		return func(p *corev1.Pod) bool { return among(podrefs.Secrets(p.GetSpec()), a.Name) }
	case "serviceaccounts":
		return func(p *corev1.Pod) bool { return podrefs.ServiceAccount(p.GetSpec()) == a.Name }
	case "persistentvolumeclaims":
		return func(p *corev1.Pod) bool { return slices.Contains(storage.ClaimNames(p), a.Name) }
	case "runtimeclasses":
		return func(p *corev1.Pod) bool {
			return p.GetSpec().RuntimeClassName != nil && p.GetSpec().GetRuntimeClassName() == a.Name
		}
	case "persistentvolumes":
		return func(p *corev1.Pod) bool {
			for v := range s.volumesOf(ctx, p) {
				if v == a.Name {
					return true
				}
			}
			return false
		}
	default:
		return nil
	}
}

func among(names iter.Seq[string], name string) bool {
	for n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// selected returns the one name that a field selector lets pass, when it says nothing but that; else "".
func selected(selector string) string {
	s, err := fields.ParseSelector(selector)
	if err != nil || len(s.Requirements()) != 1 {
		return ""
	}
	name, _ := s.RequiresExactMatch("metadata.name")
	return name
}

// ofItsPods says whether a pod of the agent's machine needs something; namespace is empty for pods of all.
func (s *Server) ofItsPods(
	ctx context.Context, id auth.Identity, namespace string, needs func(*corev1.Pod) bool,
) (bool, error) {
	pods, err := s.store.List(ctx, corev1.PodKind, store.ListOptions{
		Namespace: namespace, Field: fields.OneTermEqualSelector("spec.nodeName", id.Node),
	})
	if err != nil {
		return false, err
	}
	for _, o := range pods.Objects {
		p := o.(*corev1.Pod)
		if key := nodekey.Of(p.GetMetadata()); (key == "" || key == id.Key) && needs(p) {
			return true, nil
		}
	}
	return false, nil
}

// volumesOf returns the names of the volumes that the claims of a pod are bound to, with the claims.
func (s *Server) volumesOf(ctx context.Context, p *corev1.Pod) iter.Seq2[string, *corev1.PersistentVolumeClaim] {
	return func(yield func(string, *corev1.PersistentVolumeClaim) bool) {
		for _, name := range storage.ClaimNames(p) {
			key := store.Key{Kind: corev1.PersistentVolumeClaimKind, Namespace: p.GetMetadata().GetNamespace(), Name: name}
			o, err := s.store.Get(ctx, key, "")
			if err != nil {
				continue // another may be; if none is, the agent asks again
			}
			claim := o.(*corev1.PersistentVolumeClaim)
			if v := claim.GetSpec().GetVolumeName(); v != "" && !yield(v, claim) {
				return
			}
		}
	}
}

// usesSecretOfVolume says whether a node needs the Secret that a request asks for to mount a volume of a pod. The
// volume must be bound to the pod's claim: anybody may name any volume in a claim.
func (s *Server) usesSecretOfVolume(ctx context.Context, p *corev1.Pod, a auth.Attributes) bool {
	for volume, claim := range s.volumesOf(ctx, p) {
		o, err := s.store.Get(ctx, store.Key{Kind: corev1.PersistentVolumeKind, Name: volume}, "")
		if err != nil {
			continue
		}
		v, of := o.(*corev1.PersistentVolume), claim.GetMetadata()
		if by := v.GetSpec().GetClaimRef(); by.GetUid() != of.GetUid() || by.GetNamespace() != of.GetNamespace() ||
			by.GetName() != of.GetName() {
			continue
		}
		for namespace, name := range podrefs.VolumeSecrets(v) {
			if namespace == a.Namespace && name == a.Name {
				return true
			}
		}
	}
	return false
}
