package security

import (
	"monoplane.dev/object"

	appsv1 "monoplane.dev/api/apps/v1"
	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// templateOf returns the template of the pods that an object makes; nil for one that makes none.
func templateOf(o object.Object) (*metav1.ObjectMeta, *corev1.PodSpec) {
	var t *corev1.PodTemplateSpec
	switch o := o.(type) {
	case *corev1.PodTemplate:
		t = o.GetTemplate()
	case *corev1.ReplicationController:
		t = o.GetSpec().GetTemplate()
	case *appsv1.ReplicaSet:
		t = o.GetSpec().GetTemplate()
	case *appsv1.Deployment:
		t = o.GetSpec().GetTemplate()
	case *appsv1.DaemonSet:
		t = o.GetSpec().GetTemplate()
	case *appsv1.StatefulSet:
		t = o.GetSpec().GetTemplate()
	case *batchv1.Job:
		t = o.GetSpec().GetTemplate()
	case *batchv1.CronJob:
		t = o.GetSpec().GetJobTemplate().GetSpec().GetTemplate()
	}
	return t.GetMetadata(), t.GetSpec()
}
