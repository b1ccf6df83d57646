package nodekey

import (
	"context"
	"strings"

	"golang.org/x/sync/errgroup"

	"monoplane.dev/apiserver/store"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Claim says that a node name belongs to another machine.
type Claim struct {
	// Node is the name.
	Node string
	// Key is the other machine's, from the Node or else from a pod that is bound to the name.
	Key string
	// Simulated says that the Node runs nothing real. It is false when there are only pods.
	Simulated bool

	pods []object.Object
}

// simulated begins the runtime's version on the status of a Node whose pods have no processes.
const simulated = "fake://"

// Claims returns which of the names belong to another machine than that with the key.
func Claims(ctx context.Context, s *store.Store, names []string, key string) ([]*Claim, error) {
	nodes, err := s.List(ctx, corev1.NodeKind, store.ListOptions{})
	if err != nil {
		return nil, err
	}
	registered := make(map[string]*corev1.Node, len(nodes.Objects))
	for _, o := range nodes.Objects {
		if n, ok := o.(*corev1.Node); ok {
			registered[n.GetMetadata().GetName()] = n
		}
	}
	claims := map[string]*Claim{} // also of names that may turn out to be free
	var out []*Claim
	for _, name := range names {
		n := registered[name]
		switch other := Of(n.GetMetadata()); {
		case n == nil || other == "":
			claims[name] = &Claim{Node: name}
		case other != key:
			claims[name] = &Claim{
				Node: name, Key: other,
				Simulated: strings.HasPrefix(n.GetStatus().GetNodeInfo().GetContainerRuntimeVersion(), simulated),
			}
		default:
			continue
		}
		out = append(out, claims[name])
	}
	if len(claims) == 0 {
		return nil, nil
	}
	pods, err := s.List(ctx, corev1.PodKind, store.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, o := range pods.Objects {
		p, ok := o.(*corev1.Pod)
		if !ok {
			continue
		}
		c, other := claims[p.GetSpec().GetNodeName()], Of(p.GetMetadata())
		if c == nil || other == "" || other == key {
			continue
		}
		if c.Key == "" {
			c.Key = other
		}
		c.pods = append(c.pods, p)
	}
	kept := out[:0]
	for _, c := range out {
		if c.Key != "" {
			kept = append(kept, c)
		}
	}
	return kept, nil
}

// adopting is how many pods change hands at the same time.
const adopting = 64

// Adopt gives the name, and the pods that are bound to it, to the machine with the key. The Node comes last, in the
// turn of the name: as long as it is the other machine's, the name is, and who registers it has seen the pods as they
// are now. It is for the word of an operator that the other machine is dead, or for nodes that run nothing real.
func (c *Claim) Adopt(ctx context.Context, s *store.Store, key string) error {
	g, bounded := errgroup.WithContext(ctx)
	g.SetLimit(adopting)
	for _, p := range c.pods {
		m := p.GetMetadata()
		g.Go(func() error {
			at := store.Key{Kind: corev1.PodKind, Namespace: m.GetNamespace(), Name: m.GetName()}
			_, err := s.Mutate(bounded, at, func(live object.Object) (*store.Txn, error) {
				if live == nil || live.GetMetadata().GetUid() != m.GetUid() {
					return nil, nil
				}
				return adopt(s, at, live, key), nil
			})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	at := store.Key{Kind: corev1.NodeKind, Name: c.Node}
	_, err := s.Mutate(ctx, at, func(live object.Object) (*store.Txn, error) {
		turn, err := Turn(ctx, s, c.Node)
		if err != nil {
			return nil, err
		}
		txn := &store.Txn{}
		if live != nil {
			if txn = adopt(s, at, live, key); txn == nil {
				return nil, nil
			}
		}
		txn.Guards = []store.Guard{turn}
		return txn, nil
	})
	return err
}

// adopt records the key on an object; nil when it has it.
func adopt(s *store.Store, at store.Key, live object.Object, key string) *store.Txn {
	if Of(live.GetMetadata()) == key {
		return nil
	}
	next := withKey(live, key)
	s.Share(next, live)
	return &store.Txn{Ops: []store.Op{{Key: at, Object: next}}}
}

// withKey returns a copy of an object, which shares all but the metadata with it.
func withKey(live object.Object, key string) object.Object {
	next := object.Shallow(live)
	var m *metav1.ObjectMeta
	switch o := next.(type) {
	case *corev1.Node:
		o.Metadata = object.Clone(o.Metadata)
		m = o.Metadata
	case *corev1.Pod:
		o.Metadata = object.Clone(o.Metadata)
		m = o.Metadata
	}
	Set(m, key)
	return next
}
