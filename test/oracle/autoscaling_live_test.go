//go:build kubernetes

package oracle

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	autoscaling2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	podmetrics "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	metrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	"monoplane.dev/controllers/podautoscaler/measure"
	"monoplane.dev/controllers/podautoscaler/pace"
)

// usedBy is what the API of metrics says, in place of its client.
type usedBy struct {
	metricsclient.PodMetricsInterface
	list metrics.PodMetricsList
}

func (u *usedBy) PodMetricses(string) metricsclient.PodMetricsInterface { return u }

func (u *usedBy) List(context.Context, metav1.ListOptions) (*metrics.PodMetricsList, error) {
	return u.list.DeepCopy(), nil
}

func theirReplicasOfUse(t testing.TB, q useQuestion) (out proposed) {
	used := &usedBy{list: metrics.PodMetricsList{Items: q.Used}}
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, p := range q.Pods {
		if err := store.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	tolerance := struct{ down, up float64 }{q.Tolerance.Down, q.Tolerance.Up}
	of := *(*podautoscaler.Tolerances)(unsafe.Pointer(&tolerance))
	synctest.Test(t.(*testing.T), func(t *testing.T) {
		c := podautoscaler.NewReplicaCalculator(podmetrics.NewRESTMetricsClient(used, nil, nil),
			corelisters.NewPodLister(store), measure.StartUp, measure.FirstReadiness)
		var err error
		if q.Utilization > 0 {
			out.Replicas, out.Proposal.Utilization, out.Proposal.Average, _, err = c.GetResourceReplicas(t.Context(), q.Wanted,
				q.Utilization, v1.ResourceName(q.Resource), of, "default", labels.Everything(), q.Container)
		} else {
			out.Replicas, out.Proposal.Average, _, err = c.GetRawResourceReplicas(t.Context(), q.Wanted, q.Average,
				v1.ResourceName(q.Resource), of, "default", labels.Everything(), q.Container)
		}
		if out.Wrong = errorText(err); strings.HasPrefix(out.Wrong, "missing") {
			out.Wrong = "missing" // in one of several pods, by chance
		}
	})
	if out.Wrong != "" {
		out.Proposal = measure.Proposal{}
	}
	return out
}

//go:linkname paceTheirs k8s.io/kubernetes/pkg/controller/podautoscaler.(*HorizontalController).normalizeDesiredReplicas
func paceTheirs(c *podautoscaler.HorizontalController, hpa *autoscaling2.HorizontalPodAutoscaler, key string,
	current, desired, least int32) int32

//go:linkname behaveTheirs k8s.io/kubernetes/pkg/controller/podautoscaler.(*HorizontalController).normalizeDesiredReplicasWithBehaviors
func behaveTheirs(c *podautoscaler.HorizontalController, hpa *autoscaling2.HorizontalPodAutoscaler, key string,
	current, desired, least int32) int32

//go:linkname rememberChange k8s.io/kubernetes/pkg/controller/podautoscaler.(*HorizontalController).storeScaleEvent
func rememberChange(c *podautoscaler.HorizontalController, behavior *autoscaling2.HorizontalPodAutoscalerBehavior,
	key string, from, to int32)

//go:linkname rememberFirst k8s.io/kubernetes/pkg/controller/podautoscaler.(*HorizontalController).recordInitialRecommendation
func rememberFirst(c *podautoscaler.HorizontalController, current int32, key string)

// newPacer is Kubernetes' controller as far as it paces: its memory, and nothing that runs.
func newPacer() *podautoscaler.HorizontalController {
	c := &podautoscaler.HorizontalController{}
	v := reflect.ValueOf(c).Elem()
	field := func(name string) reflect.Value {
		f := v.FieldByName(name)
		return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
	}
	for _, name := range []string{"recommendations", "scaleUpEvents", "scaleDownEvents"} {
		field(name).Set(reflect.MakeMap(field(name).Type()))
	}
	field("downscaleStabilisationWindow").SetInt(int64(pace.DefaultWindow))
	return c
}

// pacer is Kubernetes' controller in the midst of a history, which has gone on for some time.
type pacer struct {
	*podautoscaler.HorizontalController
	elapsed time.Duration
}

// theirPace takes a step of a history some time after the one before it.
func theirPace(
	t testing.TB, past *course, k *autoscaling2.HorizontalPodAutoscaler, current, proposed, least int32,
	waits time.Duration,
) (out paced) {
	first := past.theirs == nil
	if first {
		past.theirs = &pacer{HorizontalController: newPacer()}
	}
	c := past.theirs.(*pacer)
	c.elapsed += waits
	k = k.DeepCopy()
	synctest.Test(t.(*testing.T), func(*testing.T) {
		time.Sleep(c.elapsed) // each bubble begins at the same time
		if first {
			rememberFirst(c.HorizontalController, current, "h")
		}
		if k.Spec.Behavior == nil {
			out.Replicas = paceTheirs(c.HorizontalController, k, "h", current, proposed, least)
		} else {
			out.Replicas = behaveTheirs(c.HorizontalController, k, "h", current, proposed, least)
		}
		if out.Replicas != current {
			rememberChange(c.HorizontalController, k.Spec.Behavior, "h", current, out.Replicas)
		}
	})
	out.Conditions = k.Status.Conditions
	return out
}
