// Package oracle compares defaulting and validation with those of Kubernetes 1.36 (module
// k8s.io/kubernetes), object by object: a table of single faults and seeded random mutations. Where
// Monoplane means to differ, the test says so (see intended).
package oracle

import (
	"google.golang.org/protobuf/proto"
)

// upstream is what the generated types of k8s.io/api can do.
type upstream interface {
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// ours turns an object of Kubernetes into Monoplane's, by way of their common protobuf encoding.
func ours[T proto.Message](from upstream, to T) (T, error) {
	data, err := from.Marshal()
	if err != nil {
		return to, err
	}
	return to, proto.Unmarshal(data, to)
}
