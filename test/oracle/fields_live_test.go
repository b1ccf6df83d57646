//go:build kubernetes

package oracle

import (
	"math/rand/v2"
	"time"

	autoscaling1 "k8s.io/api/autoscaling/v1"
	autoscaling2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"monoplane.dev/apiserver/fieldmanager"
	ourautoscaling "monoplane.dev/apiserver/kinds/autoscaling"
	"monoplane.dev/apiserver/kinds/define"
	ourevents "monoplane.dev/apiserver/kinds/events"

	oursautoscaling "monoplane.dev/api/autoscaling/v2"
	ourscore "monoplane.dev/api/core/v1"
)

// kindsOfVersions are kinds that are served in several versions.
func kindsOfVersions() []owned {
	internalScheme = legacyscheme.Scheme
	return []owned{
		{"Event", v1.SchemeGroupVersion.WithKind("Event"), ourscore.EventKind, func() runtime.Object {
			return &v1.Event{ObjectMeta: meta("e"),
				InvolvedObject: v1.ObjectReference{Kind: "Pod", Name: "p", Namespace: "default"},
				Reason:         "Started", Message: "Started container", Type: "Normal", Count: 2, Action: "Start",
				ReportingController: "kubelet", ReportingInstance: "n", Source: v1.EventSource{Component: "kubelet", Host: "n"},
				FirstTimestamp: metav1.Unix(1, 0), LastTimestamp: metav1.Unix(2, 0),
				EventTime: metav1.NewMicroTime(time.Unix(1, 5000)),
				Series:    &v1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(time.Unix(3, 0))}}
		}, &otherVersion{eventsv1.SchemeGroupVersion.WithKind("Event"), viewOf(ourevents.Event(define.Config{}))}},
		{"HorizontalPodAutoscaler", autoscaling2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"),
			oursautoscaling.HorizontalPodAutoscalerKind,
			func() runtime.Object {
				a := autoscalerWithStatus(rand.New(rand.NewPCG(7, 1)))
				a.Annotations = nil
				return a
			},
			&otherVersion{autoscaling1.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"),
				viewOf(ourautoscaling.HorizontalPodAutoscalerV1(define.Config{}))}},
	}
}

// viewOf is what serves another version.
func viewOf(d define.Definition) fieldmanager.Version {
	return fieldmanager.Version{Kind: d.View.Kind, In: d.View.In, Out: d.View.Out}
}
