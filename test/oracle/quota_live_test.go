//go:build kubernetes

package oracle

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	evaluators "k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	testclock "k8s.io/utils/clock/testing"
)

// evaluator knows what objects of a kind take at some time.
func evaluator(kind string, now time.Time) quota.Evaluator {
	switch kind {
	case "pods":
		return evaluators.NewPodEvaluator(nil, testclock.NewFakeClock(now))
	case "services":
		return evaluators.NewServiceEvaluator(nil)
	default:
		return evaluators.NewPersistentVolumeClaimEvaluator(nil)
	}
}

func theirUsage(t testing.TB, kind string, k taker, q *v1.ResourceQuota, now time.Time) (out usage) {
	by := evaluator(kind, now)
	var err error
	if out.Used, err = by.Usage(k); err != nil {
		t.Fatal(err)
	}
	if out.Matches, err = by.Matches(q, k); err != nil {
		t.Fatal(err)
	}
	out.Limits = by.MatchingResources(quota.ResourceNames(q.Spec.Hard))
	slices.Sort(out.Limits)
	if err := by.Constraints(out.Limits, k); err != nil {
		out.Unsaid = strings.TrimPrefix(err.Error(), "must specify ")
	}
	return out
}

// theirCharge says why quotas refuse a change, empty when they do not. What the objects that are there take is written
// down before, as Kubernetes' controller does.
func theirCharge(
	t testing.TB, quotas []v1.ResourceQuota, live map[string]taker, next, old taker, sub string, now time.Time,
) string {
	quotas = slices.Clone(quotas)
	for i := range quotas {
		q := &quotas[i]
		q.Status.Used = v1.ResourceList{}
		for name := range q.Spec.Hard {
			q.Status.Used[name] = resource.Quantity{}
		}
		for name, o := range live {
			by := evaluator(resourceIn(name), now)
			matches, err := by.Matches(q, o)
			if err != nil {
				t.Fatal(err)
			}
			used, err := by.Usage(o)
			if err != nil {
				t.Fatal(err)
			}
			if matches {
				q.Status.Used = quota.Add(q.Status.Used, quota.Mask(used, quota.ResourceNames(q.Spec.Hard)))
			}
		}
	}
	operation, before := admission.Create, runtime.Object(nil)
	if old != nil {
		operation, before = admission.Update, old
	}
	kind := resourceIn(next.GetName())
	_, err := resourcequota.CheckRequest(quotas, admission.NewAttributesRecord(next, before,
		next.GetObjectKind().GroupVersionKind(), next.GetNamespace(), next.GetName(),
		v1.SchemeGroupVersion.WithResource(kind), sub, operation, nil, false, nil), evaluator(kind, now), nil)
	return plainly(err)
}

func theirRangedPod(t testing.TB, k *v1.Pod, rng *v1.LimitRange) (out rangedPod) {
	rng = rng.DeepCopy()
	corev1conversion.SetObjectDefaults_LimitRange(rng)
	var p core.Pod
	if err := corev1conversion.Convert_v1_Pod_To_core_Pod(k.DeepCopy(), &p, nil); err != nil {
		t.Fatal(err)
	}
	if err := limitranger.PodMutateLimitFunc(rng, &p); err != nil {
		t.Fatal(err)
	}
	out.Annotation = p.Annotations["kubernetes.io/limit-ranger"]
	out.Refused = faultsOf(errorText(limitranger.PodValidateLimitFunc(rng, &p)))
	return out
}

func theirRangedClaim(t testing.TB, k *v1.PersistentVolumeClaim, rng *v1.LimitRange) []string {
	var c core.PersistentVolumeClaim
	err := corev1conversion.Convert_v1_PersistentVolumeClaim_To_core_PersistentVolumeClaim(k.DeepCopy(), &c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return faultsOf(errorText(limitranger.PersistentVolumeClaimValidateLimitFunc(rng, &c)))
}

func theirLimitRange(t testing.TB, k *v1.LimitRange) []string {
	k = k.DeepCopy()
	corev1conversion.SetObjectDefaults_LimitRange(k)
	var in core.LimitRange
	if err := corev1conversion.Convert_v1_LimitRange_To_core_LimitRange(k, &in, nil); err != nil {
		t.Fatal(err)
	}
	return toldFaults(validation.ValidateLimitRange(&in))
}

func theirResourceQuota(t testing.TB, k *v1.ResourceQuota) []string {
	var in core.ResourceQuota
	if err := corev1conversion.Convert_v1_ResourceQuota_To_core_ResourceQuota(k.DeepCopy(), &in, nil); err != nil {
		t.Fatal(err)
	}
	return toldFaults(validation.ValidateResourceQuota(&in))
}

// toldFaults is toldHere of Kubernetes' faults.
func toldFaults(faults field.ErrorList) []string {
	var out []string
	for _, f := range faults {
		out = append(out, string(f.Type)+" "+f.Field)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// resourceIn is the resource that is a part of a name, before a number.
func resourceIn(name string) string { return strings.TrimRight(name, "0123456789") }
