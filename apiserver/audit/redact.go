package audit

import (
	"encoding/json"
	"maps"

	"google.golang.org/protobuf/proto"

	authenticationv1 "monoplane.dev/api/authentication/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/yaml"
	"monoplane.dev/codec"
	"monoplane.dev/object"
)

// lastApplied is where kubectl apply keeps the whole object that it was given.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// written returns the JSON of an object, a list or a Status as it may be written, nil for other messages.
func written(m proto.Message, withoutManagedFields bool) json.RawMessage {
	if list, ok := m.(object.List); ok && list.Len() > 0 {
		items := make([]object.Object, list.Len())
		for i := range items {
			items[i] = visible(list.At(i), withoutManagedFields)
		}
		return codec.AppendObject(nil, list.At(0).ObjectKind().NewList(list.GetMetadata(), items))
	}
	if o, ok := m.(object.Object); ok {
		return codec.AppendObject(nil, visible(o, withoutManagedFields))
	}
	if o, ok := m.(codec.Typed); ok {
		return codec.AppendObject(nil, o)
	}
	return nil
}

// visible returns o, or a copy without what must not be written: the values of a Secret, the text of a token. Names
// of keys stay.
func visible(o object.Object, withoutManagedFields bool) object.Object {
	switch secret := o.(type) {
	case *corev1.Secret:
		c := object.Shallow(secret)
		c.Data, c.StringData = emptied(c.Data, []byte{}), emptied(c.StringData, "")
		if m := metadata(c); m.GetAnnotations()[lastApplied] != "" {
			m.Annotations = maps.Clone(m.Annotations)
			delete(m.Annotations, lastApplied)
		}
		o = c
	case *authenticationv1.TokenRequest:
		c := object.Clone(secret)
		if c.Status != nil {
			c.Status.Token = ""
		}
		o = c
	case *authenticationv1.TokenReview:
		c := object.Clone(secret)
		if c.Spec != nil {
			c.Spec.Token = ""
		}
		o = c
	}
	if withoutManagedFields && len(o.GetMetadata().GetManagedFields()) > 0 {
		o = object.Shallow(o)
		metadata(o).ManagedFields = nil
	}
	return o
}

// metadata gives a copy of an object metadata of its own.
func metadata(o object.Object) *metav1.ObjectMeta {
	if m := o.GetMetadata(); m != nil {
		o.SetMetadata(m.Shallow())
	}
	return o.GetMetadata()
}

func emptied[V []byte | string](m map[string]V, none V) map[string]V {
	if m == nil {
		return nil
	}
	out := make(map[string]V, len(m))
	for k := range m {
		out[k] = none
	}
	return out
}

// patch returns the JSON of a patch, which may be YAML; a text that is neither is not written.
func patch(text []byte) json.RawMessage {
	if json.Valid(text) {
		return text
	}
	if converted, _, err := yaml.ToJSON(text); err == nil {
		return converted
	}
	return nil
}
