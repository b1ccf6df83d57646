package openapi

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	corev1 "monoplane.dev/api/core/v1"
	eventsv1 "monoplane.dev/api/events/v1"
	metav1 "monoplane.dev/api/meta/v1"
	optionsv1 "monoplane.dev/api/options/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	storagev1 "monoplane.dev/api/storage/v1"
)

// docs are the descriptions of messages and fields. They are needed while the documents are made, and only then.
type docs map[protoreflect.FullName]string

// readDocs reads what the generator has taken from the .proto files of the packages that schemas come from.
func readDocs() docs {
	all := make(docs)
	for file, text := range map[protoreflect.FileDescriptor]string{
		coordinationv1.File_monoplane_coordination_v1_lease_proto:     coordinationv1.Docs,
		corev1.File_monoplane_core_v1_pod_proto:                       corev1.Docs,
		eventsv1.File_monoplane_events_v1_event_proto:                 eventsv1.Docs,
		metav1.File_monoplane_meta_v1_object_proto:                    metav1.Docs,
		schedulingv1.File_monoplane_scheduling_v1_priorityclass_proto: schedulingv1.Docs,
		storagev1.File_monoplane_storage_v1_storageclass_proto:        storagev1.Docs,
	} {
		for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
			name, description, _ := strings.Cut(line, "\t")
			all[file.Package()+"."+protoreflect.FullName(name)] = description
		}
	}
	return all
}

// describe puts the description of a message or a field into its schema.
func (d docs) describe(schema map[string]any, name protoreflect.FullName) {
	if text := d[name]; text != "" {
		schema["description"] = text
	}
}

// describeField puts the description of a field into its schema, with what Monoplane does not do about it.
func (d docs) describeField(schema map[string]any, f protoreflect.FieldDescriptor) {
	d.describe(schema, f.FullName())
	support, _ := proto.GetExtension(f.Options(), optionsv1.E_Support).(optionsv1.Support)
	text, _ := schema["description"].(string)
	switch support {
	case optionsv1.Support_REFUSED:
		schema["description"] = strings.TrimSpace(text + " Not supported yet: setting it is refused.")
	case optionsv1.Support_STORED:
		schema["description"] = strings.TrimSpace(text + " Kept, but without effect yet.")
	}
}
