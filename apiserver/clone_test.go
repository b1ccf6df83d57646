package apiserver_test

import (
	"google.golang.org/protobuf/proto"

	"monoplane.dev/object"
)

func clone[T proto.Message](o T) T { return object.Clone(o) }
