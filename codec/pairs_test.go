package codec_test

import (
	k8scoordination "k8s.io/api/coordination/v1"
	k8score "k8s.io/api/core/v1"
	k8sevents "k8s.io/api/events/v1"
	k8sscheduling "k8s.io/api/scheduling/v1"
	k8sstorage "k8s.io/api/storage/v1"
	k8smeta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monoplane.dev/codec"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	corev1 "monoplane.dev/api/core/v1"
	eventsv1 "monoplane.dev/api/events/v1"
	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	storagev1 "monoplane.dev/api/storage/v1"
)

// pair is a message of ours and the Kubernetes type that it must be wire-compatible with.
type pair struct {
	name string
	ours func() codec.Typed
	k8s  func() protobufObject
}

// protobufObject is a Kubernetes type with JSON by reflection and protobuf by generated code.
type protobufObject interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// pairs are all messages that carry an apiVersion and a kind.
func pairs() []pair {
	return []pair{
		{"Pod", func() codec.Typed { return new(corev1.Pod) }, func() protobufObject { return new(k8score.Pod) }},
		{"PodList", func() codec.Typed { return new(corev1.PodList) }, func() protobufObject { return new(k8score.PodList) }},
		{"PodLogOptions", func() codec.Typed { return new(corev1.PodLogOptions) }, func() protobufObject { return new(k8score.PodLogOptions) }},
		{"Binding", func() codec.Typed { return new(corev1.Binding) }, func() protobufObject { return new(k8score.Binding) }},
		{"Node", func() codec.Typed { return new(corev1.Node) }, func() protobufObject { return new(k8score.Node) }},
		{"NodeList", func() codec.Typed { return new(corev1.NodeList) }, func() protobufObject { return new(k8score.NodeList) }},
		{"Namespace", func() codec.Typed { return new(corev1.Namespace) }, func() protobufObject { return new(k8score.Namespace) }},
		{"NamespaceList", func() codec.Typed { return new(corev1.NamespaceList) }, func() protobufObject { return new(k8score.NamespaceList) }},
		{"ConfigMap", func() codec.Typed { return new(corev1.ConfigMap) }, func() protobufObject { return new(k8score.ConfigMap) }},
		{"ConfigMapList", func() codec.Typed { return new(corev1.ConfigMapList) }, func() protobufObject { return new(k8score.ConfigMapList) }},
		{"ServiceAccount", func() codec.Typed { return new(corev1.ServiceAccount) }, func() protobufObject { return new(k8score.ServiceAccount) }},
		{"ServiceAccountList", func() codec.Typed { return new(corev1.ServiceAccountList) }, func() protobufObject { return new(k8score.ServiceAccountList) }},
		{"PersistentVolume", func() codec.Typed { return new(corev1.PersistentVolume) }, func() protobufObject { return new(k8score.PersistentVolume) }},
		{"PersistentVolumeList", func() codec.Typed { return new(corev1.PersistentVolumeList) }, func() protobufObject { return new(k8score.PersistentVolumeList) }},
		{"PersistentVolumeClaim", func() codec.Typed { return new(corev1.PersistentVolumeClaim) }, func() protobufObject { return new(k8score.PersistentVolumeClaim) }},
		{"PersistentVolumeClaimList", func() codec.Typed { return new(corev1.PersistentVolumeClaimList) }, func() protobufObject { return new(k8score.PersistentVolumeClaimList) }},
		{"core Event", func() codec.Typed { return new(corev1.Event) }, func() protobufObject { return new(k8score.Event) }},
		{"core EventList", func() codec.Typed { return new(corev1.EventList) }, func() protobufObject { return new(k8score.EventList) }},
		{"Event", func() codec.Typed { return new(eventsv1.Event) }, func() protobufObject { return new(k8sevents.Event) }},
		{"EventList", func() codec.Typed { return new(eventsv1.EventList) }, func() protobufObject { return new(k8sevents.EventList) }},
		{"Lease", func() codec.Typed { return new(coordinationv1.Lease) }, func() protobufObject { return new(k8scoordination.Lease) }},
		{"LeaseList", func() codec.Typed { return new(coordinationv1.LeaseList) }, func() protobufObject { return new(k8scoordination.LeaseList) }},
		{"PriorityClass", func() codec.Typed { return new(schedulingv1.PriorityClass) }, func() protobufObject { return new(k8sscheduling.PriorityClass) }},
		{"PriorityClassList", func() codec.Typed { return new(schedulingv1.PriorityClassList) }, func() protobufObject { return new(k8sscheduling.PriorityClassList) }},
		{"StorageClass", func() codec.Typed { return new(storagev1.StorageClass) }, func() protobufObject { return new(k8sstorage.StorageClass) }},
		{"StorageClassList", func() codec.Typed { return new(storagev1.StorageClassList) }, func() protobufObject { return new(k8sstorage.StorageClassList) }},
		{"Status", func() codec.Typed { return new(metav1.Status) }, func() protobufObject { return new(k8smeta.Status) }},
		{"CreateOptions", func() codec.Typed { return new(metav1.CreateOptions) }, func() protobufObject { return new(k8smeta.CreateOptions) }},
		{"DeleteOptions", func() codec.Typed { return new(metav1.DeleteOptions) }, func() protobufObject { return new(k8smeta.DeleteOptions) }},
		{"GetOptions", func() codec.Typed { return new(metav1.GetOptions) }, func() protobufObject { return new(k8smeta.GetOptions) }},
		{"ListOptions", func() codec.Typed { return new(metav1.ListOptions) }, func() protobufObject { return new(k8smeta.ListOptions) }},
		{"PatchOptions", func() codec.Typed { return new(metav1.PatchOptions) }, func() protobufObject { return new(k8smeta.PatchOptions) }},
		{"UpdateOptions", func() codec.Typed { return new(metav1.UpdateOptions) }, func() protobufObject { return new(k8smeta.UpdateOptions) }},
		{"PartialObjectMetadata", func() codec.Typed { return new(metav1.PartialObjectMetadata) }, func() protobufObject { return new(k8smeta.PartialObjectMetadata) }},
		{"PartialObjectMetadataList", func() codec.Typed { return new(metav1.PartialObjectMetadataList) }, func() protobufObject { return new(k8smeta.PartialObjectMetadataList) }},
	}
}
