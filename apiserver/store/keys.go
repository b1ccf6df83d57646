package store

import (
	"fmt"
	"strings"

	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// The whole key tree. Nothing else is ever written:
//
//	/monoplane/version                                   format of the data, as a decimal number
//	/monoplane/seal                                      id of the key with which values are encrypted
//	/monoplane/<group>/<plural>/<namespace>/<name>       an object of a namespaced kind
//	/monoplane/<group>/<plural>/<name>                   an object of a cluster-scoped kind
//	/monoplane/turns/<plural>/<name>                     a turn: an empty value, whose revision counts
//
// <group> is "core" for the core group. For example:
//
//	/monoplane/core/pods/default/web
//	/monoplane/core/nodes/n1
//	/monoplane/coordination.k8s.io/leases/kube-node-lease/n1
//	/monoplane/turns/priorityclasses/default
//
// An object's value is described in value.go. Objects that expire are attached to a lease. Turns are never deleted: a
// key that comes and goes looks the same before and after.
const (
	root       = "/monoplane/"
	versionKey = root + "version"
	sealKey    = root + "seal"
	turnPrefix = root + "turns/"
)

// kindPrefix is what the keys of a kind begin with.
func kindPrefix(k *object.Kind) string {
	group := k.Group
	if group == "" {
		group = "core"
	}
	return root + group + "/" + k.Plural + "/"
}

// objectKey is the rest of an object's key, by which the caches know it.
func objectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// key is the whole key of an object.
func (k *kind) key(o Key) string {
	if o.Namespace == "" {
		return k.prefix + o.Name
	}
	return k.prefix + o.Namespace + "/" + o.Name
}

// guardKey is the whole key that a guard compares.
func (s *Store) guardKey(g *Guard) (string, error) {
	if g.Condition == InTurn || g.Condition == InOffice {
		return turnPrefix + g.Key.Name, nil
	}
	k, err := s.kindOf(g.Key)
	if err != nil {
		return "", err
	}
	return k.key(g.Key), nil
}

// splitKey finds the kind prefix of a key and the rest. ok is false for keys that are no object's.
func splitKey(key string) (prefix, rest string, ok bool) {
	if !strings.HasPrefix(key, root) {
		return "", "", false
	}
	group := strings.IndexByte(key[len(root):], '/')
	if group < 0 {
		return "", "", false
	}
	plural := strings.IndexByte(key[len(root)+group+1:], '/')
	if plural < 0 {
		return "", "", false
	}
	end := len(root) + group + 1 + plural + 1
	return key[:end], key[end:], true
}

// kindOf returns what the store knows of a key's kind, and checks the key. Callers have validated names in the
// words of the API; here it only matters that a key cannot reach into another part of the tree.
func (s *Store) kindOf(k Key) (*kind, error) {
	if k.Kind == nil {
		return nil, fmt.Errorf("store: key %s/%s has no kind", k.Namespace, k.Name)
	}
	kd := s.byKind[k.Kind]
	switch {
	case kd == nil:
		return nil, fmt.Errorf("store: kind %s is not stored", k.Kind.Resource())
	case k.Name == "" || strings.ContainsAny(k.Name, "/\x00") || strings.ContainsAny(k.Namespace, "/\x00"):
		return nil, apierrors.New(apierrors.BadRequest, "%q is no name", objectKey(k.Namespace, k.Name))
	case k.Kind.Namespaced && k.Namespace == "":
		return nil, apierrors.New(apierrors.BadRequest, "%s %q needs a namespace", k.Kind.Resource(), k.Name)
	case !k.Kind.Namespaced && k.Namespace != "":
		return nil, apierrors.New(apierrors.BadRequest, "%s %q has no namespace", k.Kind.Resource(), k.Name)
	}
	return kd, nil
}
