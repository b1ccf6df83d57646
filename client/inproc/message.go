package inproc

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// detach returns what is handed over for m: m itself, or a deep copy of it.
func (c *conn) detach(m any) (proto.Message, error) {
	p, ok := m.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "inproc: %T is not a protobuf message", m)
	}
	if !c.clone {
		return p, nil
	}
	if own, ok := m.(interface{ CloneMessage() proto.Message }); ok {
		return own.CloneMessage(), nil
	}
	return proto.Clone(p), nil
}

// deliver fills dst, which the receiver made, from src. What src points to is shared. Messages of ours do it
// themselves, others take ten times as long.
func deliver(dst any, src proto.Message) error {
	if d, ok := dst.(interface{ SetShallow(proto.Message) bool }); ok && d.SetShallow(src) {
		return nil
	}
	d, ok := dst.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "inproc: %T is not a protobuf message", dst)
	}
	to, from := d.ProtoReflect(), src.ProtoReflect()
	if to.Descriptor() != from.Descriptor() {
		return status.Errorf(codes.Internal, "inproc: received %s for %s",
			from.Descriptor().FullName(), to.Descriptor().FullName())
	}
	proto.Reset(d)
	from.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.Set(f, v)
		return true
	})
	if u := from.GetUnknown(); len(u) > 0 {
		to.SetUnknown(u)
	}
	return nil
}
