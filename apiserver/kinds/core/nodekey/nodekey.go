// Package nodekey remembers which machine a node name belongs to (spec: NODE-7). The key of the machine is
// recorded on the Node when its agent registers, and on every pod when it is bound to that Node, so that it is
// still known when the Node has been deleted and pods are left.
//
// Only the server writes the record: clients that change it are overruled by Keep. A machine whose identity
// has no key leaves no record, and is not told apart from others.
package nodekey

import (
	"context"
	"fmt"
	"hash/crc32"

	"monoplane.dev/apiserver/store"

	metav1 "monoplane.dev/api/meta/v1"
)

// Annotation holds the key of the machine.
const Annotation = "monoplane.dev/machine-key"

// Of returns the recorded key, empty for none.
func Of(m *metav1.ObjectMeta) string { return m.GetAnnotations()[Annotation] }

// Set records key on m, which the caller owns; an empty key removes the record.
func Set(m *metav1.ObjectMeta, key string) {
	if key == "" {
		delete(m.Annotations, Annotation)
		return
	}
	if m.Annotations == nil {
		m.Annotations = make(map[string]string, 1)
	}
	m.Annotations[Annotation] = key
}

// turns is how many turns the names share: names come and go, turns stay. Servers of one etcd must agree on it, and
// on how Turn spreads the names.
const turns = 256

// Turn returns the turn of a name, which is taken by every write that makes its Node a machine's.
func Turn(ctx context.Context, s *store.Store, node string) (store.Guard, error) {
	return s.Turn(ctx, fmt.Sprintf("nodes/%02x", crc32.ChecksumIEEE([]byte(node))%turns))
}

// Keep gives next, which the caller owns, the record of live, whatever a client wrote there.
func Keep(next, live *metav1.ObjectMeta) {
	if key := Of(live); key != Of(next) {
		Set(next, key)
	}
}
