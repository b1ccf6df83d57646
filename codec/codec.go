// Package codec turns objects into bytes and back, with the apiVersion and kind that clients expect around
// them: as JSON, and as Kubernetes protobuf (the four bytes "k8s\0" and an Unknown message). It also finds
// kinds by name.
//
// The encoded form of an object without apiVersion and kind, its body, is the same in lists, watches and
// alone, so that one encoding of a revision can be kept and shared. The functions that take bodies put
// together objects, lists and watch frames around them by copying bytes only.
//
// Decoding refuses a body of another kind than the one asked for; a body that names none is taken as the one
// asked for. It does not apply defaults, does not validate, and does not negotiate content types.
package codec

import (
	"google.golang.org/protobuf/proto"

	"monoplane.dev/codec/json"
)

// Typed is what has an apiVersion and a kind of its own: objects, lists, Status, DeleteOptions.
type Typed interface {
	proto.Message
	json.Value

	// TypeMeta returns the apiVersion and kind that bodies carry, such as "v1" and "Pod".
	TypeMeta() (apiVersion, kind string)
}
