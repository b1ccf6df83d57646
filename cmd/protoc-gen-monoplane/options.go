package main

import (
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"

	optionsv1 "monoplane.dev/api/options/v1"
)

func inlined(f *protogen.Field) bool {
	return proto.GetExtension(f.Desc.Options(), optionsv1.E_Inline).(bool)
}

func always(f *protogen.Field) bool {
	return proto.GetExtension(f.Desc.Options(), optionsv1.E_Always).(bool)
}

func scalarOf(m *protogen.Message) optionsv1.Scalar {
	return proto.GetExtension(m.Desc.Options(), optionsv1.E_Scalar).(optionsv1.Scalar)
}

// kindOf returns what makes m a kind, nil for other messages.
func kindOf(m *protogen.Message) *optionsv1.Kind {
	if !proto.HasExtension(m.Desc.Options(), optionsv1.E_Kind) {
		return nil
	}
	return proto.GetExtension(m.Desc.Options(), optionsv1.E_Kind).(*optionsv1.Kind)
}

func apiVersion(k *optionsv1.Kind) string {
	if k.GetGroup() == "" {
		return k.GetVersion()
	}
	return k.GetGroup() + "/" + k.GetVersion()
}

// isTime says whether the message is one that JSON writes as null when it is zero.
func isTime(m *protogen.Message) bool {
	s := scalarOf(m)
	return s == optionsv1.Scalar_TIME || s == optionsv1.Scalar_MICRO_TIME
}
