package codec_test

import (
	"strings"
	"testing"

	k8sapps "k8s.io/api/apps/v1"
	k8sauthentication "k8s.io/api/authentication/v1"
	k8sauthorization "k8s.io/api/authorization/v1"
	k8sautoscaling "k8s.io/api/autoscaling/v1"
	k8sautoscaling2 "k8s.io/api/autoscaling/v2"
	k8sbatch "k8s.io/api/batch/v1"
	k8scertificates "k8s.io/api/certificates/v1"
	k8scoordination "k8s.io/api/coordination/v1"
	k8score "k8s.io/api/core/v1"
	k8sdiscovery "k8s.io/api/discovery/v1"
	k8sevents "k8s.io/api/events/v1"
	k8sflowcontrol "k8s.io/api/flowcontrol/v1"
	k8snetworking "k8s.io/api/networking/v1"
	k8snode "k8s.io/api/node/v1"
	k8spolicy "k8s.io/api/policy/v1"
	k8srbac "k8s.io/api/rbac/v1"
	k8sscheduling "k8s.io/api/scheduling/v1"
	k8sstorage "k8s.io/api/storage/v1"
	k8smeta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8smetrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"monoplane.dev/api/services"
	"monoplane.dev/codec"

	authenticationv1 "monoplane.dev/api/authentication/v1"
	autoscalingv1 "monoplane.dev/api/autoscaling/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
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

// upstream returns a scheme with Kubernetes' types of each API group that is served.
func upstream(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		k8sapps.AddToScheme,
		k8sauthentication.AddToScheme,
		k8sauthorization.AddToScheme,
		k8sautoscaling.AddToScheme,
		k8sautoscaling2.AddToScheme,
		k8sbatch.AddToScheme,
		k8scertificates.AddToScheme,
		k8scoordination.AddToScheme,
		k8score.AddToScheme,
		k8sdiscovery.AddToScheme,
		k8sevents.AddToScheme,
		k8sflowcontrol.AddToScheme,
		k8smetrics.AddToScheme,
		k8snode.AddToScheme,
		k8snetworking.AddToScheme,
		k8spolicy.AddToScheme,
		k8srbac.AddToScheme,
		k8sscheduling.AddToScheme,
		k8sstorage.AddToScheme,
	} {
		must(t, add(scheme))
	}
	return scheme
}

// ownGroup ends the names of the groups of which Kubernetes knows nothing.
const ownGroup = ".monoplane.dev"

// pairs are all messages that carry an apiVersion and a kind: pods and lists of pods first, then every other kind that
// is served with its list, which are found by their names, and what clients send and get besides.
func pairs(t testing.TB) []pair {
	t.Helper()
	scheme := upstream(t)
	all := []pair{
		{"Pod", func() codec.Typed { return new(corev1.Pod) }, func() protobufObject { return new(k8score.Pod) }},
		{"PodList", func() codec.Typed { return new(corev1.PodList) },
			func() protobufObject { return new(k8score.PodList) }},
	}
	add := func(kind schema.GroupVersionKind, ours func() codec.Typed) {
		o, err := scheme.New(kind)
		if err != nil {
			t.Errorf("nothing to compare %s with; is its group in upstream? %v", kind, err)
			return
		}
		if _, ok := o.(protobufObject); !ok {
			t.Errorf("Kubernetes has no protobuf for %s", kind)
			return
		}
		all = append(all, pair{
			kind.GroupVersion().String() + " " + kind.Kind, ours,
			func() protobufObject { return o.DeepCopyObject().(protobufObject) },
		})
	}
	for _, s := range services.All() {
		k := s.Kind
		if k == corev1.PodKind || strings.HasSuffix(k.Group, ownGroup) {
			continue
		}
		kind := schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}
		add(kind, func() codec.Typed { return k.New().(codec.Typed) })
		if k.NewList == nil {
			continue // a question, of which nothing is stored
		}
		kind.Kind += "List"
		add(kind, func() codec.Typed { return k.NewList(nil, nil).(codec.Typed) })
	}
	return append(all, []pair{
		{"PodLogOptions", func() codec.Typed { return new(corev1.PodLogOptions) },
			func() protobufObject { return new(k8score.PodLogOptions) }},
		{"PodExecOptions", func() codec.Typed { return new(corev1.PodExecOptions) },
			func() protobufObject { return new(k8score.PodExecOptions) }},
		{"PodAttachOptions", func() codec.Typed { return new(corev1.PodAttachOptions) },
			func() protobufObject { return new(k8score.PodAttachOptions) }},
		{"PodPortForwardOptions", func() codec.Typed { return new(corev1.PodPortForwardOptions) },
			func() protobufObject { return new(k8score.PodPortForwardOptions) }},
		{"PodProxyOptions", func() codec.Typed { return new(corev1.PodProxyOptions) },
			func() protobufObject { return new(k8score.PodProxyOptions) }},
		{"ServiceProxyOptions", func() codec.Typed { return new(corev1.ServiceProxyOptions) },
			func() protobufObject { return new(k8score.ServiceProxyOptions) }},
		{"NodeProxyOptions", func() codec.Typed { return new(corev1.NodeProxyOptions) },
			func() protobufObject { return new(k8score.NodeProxyOptions) }},
		{"Binding", func() codec.Typed { return new(corev1.Binding) },
			func() protobufObject { return new(k8score.Binding) }},
		{"TokenRequest", func() codec.Typed { return new(authenticationv1.TokenRequest) },
			func() protobufObject { return new(k8sauthentication.TokenRequest) }},
		{"Eviction", func() codec.Typed { return new(policyv1.Eviction) },
			func() protobufObject { return new(k8spolicy.Eviction) }},
		{"Scale", func() codec.Typed { return new(autoscalingv1.Scale) },
			func() protobufObject { return new(k8sautoscaling.Scale) }},
		{"Status", func() codec.Typed { return new(metav1.Status) }, func() protobufObject { return new(k8smeta.Status) }},
		{"CreateOptions", func() codec.Typed { return new(metav1.CreateOptions) },
			func() protobufObject { return new(k8smeta.CreateOptions) }},
		{"DeleteOptions", func() codec.Typed { return new(metav1.DeleteOptions) },
			func() protobufObject { return new(k8smeta.DeleteOptions) }},
		{"GetOptions", func() codec.Typed { return new(metav1.GetOptions) },
			func() protobufObject { return new(k8smeta.GetOptions) }},
		{"ListOptions", func() codec.Typed { return new(metav1.ListOptions) },
			func() protobufObject { return new(k8smeta.ListOptions) }},
		{"PatchOptions", func() codec.Typed { return new(metav1.PatchOptions) },
			func() protobufObject { return new(k8smeta.PatchOptions) }},
		{"UpdateOptions", func() codec.Typed { return new(metav1.UpdateOptions) },
			func() protobufObject { return new(k8smeta.UpdateOptions) }},
		{
			"PartialObjectMetadata", func() codec.Typed { return new(metav1.PartialObjectMetadata) },
			func() protobufObject { return new(k8smeta.PartialObjectMetadata) },
		},
		{
			"PartialObjectMetadataList", func() codec.Typed { return new(metav1.PartialObjectMetadataList) },
			func() protobufObject { return new(k8smeta.PartialObjectMetadataList) },
		},
	}...)
}
