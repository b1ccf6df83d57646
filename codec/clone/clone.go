// Package clone is what the generated Clone methods are made of: deep copies of the values that messages hold.
//
// Copies are what proto.Clone makes, a few times as fast: an empty list or map becomes nil, and a nil message in
// a list or map an empty one.
package clone

import "maps"

// Pointer copies an optional value.
func Pointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// List copies a list of plain values.
func List[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return append(make([]T, 0, len(list)), list...)
}

// Optional copies bytes that can be absent; empty ones are present.
func Optional(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

// Map copies a map of plain values.
func Map[V any](m map[string]V) map[string]V {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}

// BytesMap copies a map of bytes.
func BytesMap(m map[string][]byte) map[string][]byte {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string][]byte, len(m))
	for k, b := range m {
		out[k] = append(make([]byte, 0, len(b)), b...)
	}
	return out
}

// message is a pointer to a message of type T.
type message[T any] interface {
	*T
	CloneTo(*T)
}

// Messages copies a list of messages. They share one allocation, as they nearly always live and die together.
func Messages[T any, M message[T]](list []M) []M {
	if len(list) == 0 {
		return nil
	}
	block, out := make([]T, len(list)), make([]M, len(list))
	for i, m := range list {
		out[i] = &block[i]
		m.CloneTo(&block[i])
	}
	return out
}

// MessageMap copies a map of messages.
func MessageMap[T any, M message[T]](m map[string]M) map[string]M {
	if len(m) == 0 {
		return nil
	}
	block, out := make([]T, len(m)), make(map[string]M, len(m))
	for k, v := range m {
		v.CloneTo(&block[0])
		out[k], block = &block[0], block[1:]
	}
	return out
}
