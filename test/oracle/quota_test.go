package oracle

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	k8squota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	evaluators "k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	testclock "k8s.io/utils/clock/testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/admission/limits"
	ourcore "monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/object"
	"monoplane.dev/rules/quota"

	corev1 "monoplane.dev/api/core/v1"
)

var quotaNames = []string{
	"pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "ephemeral-storage",
	"requests.ephemeral-storage", "limits.ephemeral-storage", "hugepages-2Mi", "requests.hugepages-2Mi",
	"requests.example.com/gpu", "example.com/gpu", "count/pods", "count/services", "services", "services.nodeports",
	"services.loadbalancers", "persistentvolumeclaims", "requests.storage", "count/persistentvolumeclaims",
	"fast.storageclass.storage.k8s.io/requests.storage", "fast.storageclass.storage.k8s.io/persistentvolumeclaims",
	"configmaps", "count/deployments.apps",
}

// randomQuota limits some resources, in some scopes.
func randomQuota(r *rand.Rand) *v1.ResourceQuota {
	q := &v1.ResourceQuota{ObjectMeta: meta("q")}
	q.Spec.Hard = v1.ResourceList{}
	for range r.IntN(5) {
		for name, amount := range amounts(pick(r, quotaNames), pick(r, []string{"0", "1", "2", "500m", "1Gi"})) {
			q.Spec.Hard[name] = amount
		}
	}
	scopes := []v1.ResourceQuotaScope{"Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass",
		"CrossNamespacePodAffinity", "VolumeAttributesClass"}
	if r.IntN(3) == 0 {
		q.Spec.Scopes = append(q.Spec.Scopes, pick(r, scopes))
	}
	if r.IntN(3) == 0 {
		one := v1.ScopedResourceSelectorRequirement{ScopeName: pick(r, scopes), Operator: "Exists"}
		if one.ScopeName == "PriorityClass" || one.ScopeName == "VolumeAttributesClass" {
			one.Operator = pick(r, []v1.ScopeSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"})
			if strings.HasSuffix(string(one.Operator), "In") {
				one.Values = []string{pick(r, []string{"high", "low"}), "fast"}
			}
		}
		q.Spec.ScopeSelector = &v1.ScopeSelector{MatchExpressions: []v1.ScopedResourceSelectorRequirement{one}}
	}
	q.Status.Hard = q.Spec.Hard
	return q
}

// quotaPod is a pod in some scopes, at some point of its life.
func quotaPod(r *rand.Rand, now time.Time) *v1.Pod {
	k := resizing(r)
	k.Status.Resources, k.Status.AllocatedResources = nil, nil // their quotas do not look at those
	k.Status.QOSClass = ""
	k.Status.Phase = pick(r, []v1.PodPhase{"Pending", "Running", "Running", "Succeeded", "Failed"})
	k.Spec.PriorityClassName = pick(r, []string{"", "high", "low"})
	if r.IntN(3) == 0 {
		k.Spec.ActiveDeadlineSeconds = ptr(r.Int64N(3))
	}
	if r.IntN(3) == 0 {
		k.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Duration(r.IntN(5)-2) * 10 * time.Second)}
		k.DeletionGracePeriodSeconds = ptr(int64(r.IntN(3) * 10))
	}
	if r.IntN(3) == 0 {
		term := v1.PodAffinityTerm{TopologyKey: "zone"}
		switch r.IntN(3) {
		case 0:
			term.Namespaces = []string{"other"}
		case 1:
			term.NamespaceSelector = &metav1.LabelSelector{}
		}
		k.Spec.Affinity = &v1.Affinity{}
		if r.IntN(2) == 0 {
			k.Spec.Affinity.PodAffinity = &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.
				WeightedPodAffinityTerm{{PodAffinityTerm: term}}}
		} else {
			k.Spec.Affinity.PodAntiAffinity = &v1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}
		}
	}
	return k
}

func quotaService(r *rand.Rand) *v1.Service {
	k := &v1.Service{ObjectMeta: meta("s")}
	k.Spec.Type = pick(r, []v1.ServiceType{"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"})
	for i := range r.IntN(4) {
		k.Spec.Ports = append(k.Spec.Ports, v1.ServicePort{Port: int32(i + 1), NodePort: int32(r.IntN(2) * (i + 30000))})
	}
	if r.IntN(2) == 0 {
		k.Spec.AllocateLoadBalancerNodePorts = ptr(r.IntN(2) == 0)
	}
	return k
}

func quotaClaim(r *rand.Rand) *v1.PersistentVolumeClaim {
	k := &v1.PersistentVolumeClaim{ObjectMeta: meta("c")}
	if r.IntN(2) == 0 {
		k.Spec.StorageClassName = ptr(pick(r, []string{"fast", "slow", ""}))
	}
	if r.IntN(4) == 0 {
		k.Annotations = map[string]string{"volume.beta.kubernetes.io/storage-class": pick(r, []string{"fast", ""})}
	}
	if r.IntN(5) > 0 {
		k.Spec.Resources.Requests = amounts("storage", pick(r, []string{"1", "1Gi", "1500m", "10G"}))
	}
	if r.IntN(3) == 0 {
		k.Status.AllocatedResources = amounts("storage", pick(r, []string{"2", "2Gi", "2500m", "1G"}))
	}
	if r.IntN(3) == 0 {
		k.Spec.VolumeAttributesClassName = ptr(pick(r, []string{"fast", "slow", ""}))
	}
	if r.IntN(3) == 0 {
		k.Status.CurrentVolumeAttributesClassName = ptr(pick(r, []string{"fast", "slow", ""}))
	}
	return k
}

// What objects take, which quotas count them, and what pods must say, is the same. spec: OBJ-2
func TestQuotasCountTheSame(t *testing.T) {
	r := random(t)
	clock := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	pods := evaluators.NewPodEvaluator(nil, clock)
	services, claims := evaluators.NewServiceEvaluator(nil), evaluators.NewPersistentVolumeClaimEvaluator(nil)
	counted := 0
	for range *count {
		var theirs upstream
		var mine object.Object
		var by k8squota.Evaluator
		var err error
		switch r.IntN(4) {
		case 0:
			k := quotaService(r)
			theirs, by = k, services
			mine, err = ours(k, &corev1.Service{})
		case 1:
			k := quotaClaim(r)
			theirs, by = k, claims
			mine, err = ours(k, &corev1.PersistentVolumeClaim{})
		default:
			k := quotaPod(r, clock.Now())
			theirs, by = k, pods
			mine, err = ours(k, &corev1.Pod{})
		}
		if err != nil {
			t.Fatal(err)
		}
		k := theirs.(interface {
			upstream
			metav1.Object
			runtime.Object
		})
		want, err := by.Usage(k)
		if err != nil {
			t.Fatal(err)
		}
		got := quota.Of(mine, clock.Now())
		same := len(want) == len(got)
		for name, q := range want {
			have, ok := got[string(name)]
			same = same && ok && have.Cmp(q) == 0
		}
		if !same {
			t.Fatalf("%v\nKubernetes %v\nMonoplane  %v", k, want, got)
		}
		q := randomQuota(r)
		qq, err := ours(q, &corev1.ResourceQuota{})
		if err != nil {
			t.Fatal(err)
		}
		matches, err := by.Matches(q, k)
		if err != nil {
			t.Fatal(err)
		}
		if is := quota.Counts(qq.Spec, mine); is != matches {
			t.Fatalf("%v\n%v\ncounted by Kubernetes: %t, by Monoplane: %t", k, q.Spec, matches, is)
		}
		if matches {
			counted++
		}
		required := by.MatchingResources(k8squota.ResourceNames(q.Spec.Hard))
		for name := range q.Spec.Hard {
			if quota.Limits(mine.ObjectKind(), string(name)) != slices.Contains(required, name) {
				t.Fatalf("%s of %s: Kubernetes limits %v", name, mine.ObjectKind().Kind, required)
			}
		}
		text := ""
		if err := by.Constraints(required, k); err != nil {
			text = strings.TrimPrefix(err.Error(), "must specify ")
		}
		if missing := quota.Unsaid(quota.UsageOf(qq.Spec.Hard), mine); missing != text {
			t.Fatalf("%v\n%v\nunsaid by Kubernetes %q, by Monoplane %q", k, q.Spec, text, missing)
		}
	}
	if *count >= 100 && counted < *count/20 {
		t.Errorf("only %d of %d objects were counted", counted, *count)
	}
}

func randomLimits(r *rand.Rand) *v1.LimitRange {
	k := &v1.LimitRange{ObjectMeta: meta("r")}
	list := func() v1.ResourceList {
		l := v1.ResourceList{}
		for range r.IntN(3) {
			for name, q := range amounts(pick(r, []string{"cpu", "memory", "example.com/gpu"}),
				pick(r, []string{"1", "2", "100m", "1500m", "64Mi", "1Gi", "9000000000000"})) {
				l[name] = q
			}
		}
		return l
	}
	for range 1 + r.IntN(2) {
		k.Spec.Limits = append(k.Spec.Limits, v1.LimitRangeItem{
			Type: pick(r, []v1.LimitType{"Container", "Container", "Pod"}),
			Min:  list(), Max: list(), Default: list(), DefaultRequest: list(), MaxLimitRequestRatio: list(),
		})
	}
	corev1conversion.SetObjectDefaults_LimitRange(k)
	return k
}

// faultsOf are what an error says, in order.
func faultsOf(text string) []string {
	all := strings.Split(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), ", ")
	for i := 0; i < len(all); { // "..., but request is 1" is one
		if i+1 < len(all) && strings.HasPrefix(all[i+1], "but ") {
			all[i] += ", " + all[i+1]
			all = slices.Delete(all, i+1, i+2)
			continue
		}
		// A sum of 1Gi and 1G is written in one way or the other, by which was first.
		if space := strings.LastIndexByte(all[i], ' '); strings.Contains(all[i], ", but ") {
			if q, err := resource.ParseQuantity(all[i][space+1:]); err == nil {
				all[i] = all[i][:space+1] + q.AsDec().String()
			}
		}
		i++
	}
	slices.Sort(all)
	return all
}

// Ranges complete and judge pods in the same way, in the same words. spec: OBJ-3
func TestRangesDoTheSame(t *testing.T) {
	r := random(t)
	refused := 0
	for range *count {
		k, rng := asking(r), randomLimits(r)
		mine := ourPod(t, k)
		ranged, err := ours(rng, &corev1.LimitRange{})
		if err != nil {
			t.Fatal(err)
		}
		again := &corev1.LimitRange{Metadata: ranged.Metadata, Spec: ranged.Spec}
		ourcore.DefaultLimitRange(again)
		var theirs core.Pod
		if err := corev1conversion.Convert_v1_Pod_To_core_Pod(k, &theirs, nil); err != nil {
			t.Fatal(err)
		}
		if hugeWhole(k) {
			continue // their ranges do not know huge pages of a pod as a whole
		}
		if err := limitranger.PodMutateLimitFunc(rng, &theirs); err != nil {
			t.Fatal(err)
		}
		limits.Complete(mine, again)
		if want, got := theirs.Annotations["kubernetes.io/limit-ranger"],
			mine.Metadata.Annotations["kubernetes.io/limit-ranger"]; want != got {
			t.Fatalf("%v\n%v\nKubernetes says %q\nMonoplane  says %q", k.Spec, rng.Spec, want, got)
		}
		want, got := "", ""
		if err := limitranger.PodValidateLimitFunc(rng, &theirs); err != nil {
			want = err.Error()
		}
		if err := limits.Check(mine, again); err != nil {
			_, got, _ = strings.Cut(apierrors.From(err).Status().GetMessage(), " is forbidden: ")
			refused++
		}
		if !slices.Equal(faultsOf(want), faultsOf(got)) {
			t.Fatalf("%v\n%v\nKubernetes %s\nMonoplane  %s", k.Spec, rng.Spec, want, got)
		}
	}
	if *count >= 100 && (refused < *count/10 || refused > *count*99/100) {
		t.Errorf("%d of %d were refused", refused, *count)
	}
}

// Ranges judge claims in the same way, in the same words. spec: OBJ-3
func TestRangesOfClaimsDoTheSame(t *testing.T) {
	r := random(t)
	refused := 0
	storage := func() v1.ResourceList {
		l := v1.ResourceList{}
		for range r.IntN(3) {
			for name, q := range amounts(pick(r, []string{"storage", "storage", "example.com/iops"}),
				pick(r, []string{"0", "1", "500m", "64Mi", "1Gi", "1G", "2Gi", "9000000000000000000"})) {
				l[name] = q
			}
		}
		return l
	}
	for range *count {
		k, rng := &v1.PersistentVolumeClaim{ObjectMeta: meta("c")}, &v1.LimitRange{ObjectMeta: meta("r")}
		k.Spec.Resources.Requests = storage()
		for range 1 + r.IntN(2) {
			rng.Spec.Limits = append(rng.Spec.Limits, v1.LimitRangeItem{
				Type: pick(r, []v1.LimitType{"PersistentVolumeClaim", "PersistentVolumeClaim", "Pod", "Container"}),
				Min:  storage(), Max: storage(),
			})
		}
		mine, err := ours(k, &corev1.PersistentVolumeClaim{})
		if err != nil {
			t.Fatal(err)
		}
		ranged, err := ours(rng, &corev1.LimitRange{})
		if err != nil {
			t.Fatal(err)
		}
		var theirs core.PersistentVolumeClaim
		err = corev1conversion.Convert_v1_PersistentVolumeClaim_To_core_PersistentVolumeClaim(k, &theirs, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, got := "", ""
		if err := limitranger.PersistentVolumeClaimValidateLimitFunc(rng, &theirs); err != nil {
			want = err.Error()
		}
		if err := limits.Check(mine, ranged); err != nil {
			_, got, _ = strings.Cut(apierrors.From(err).Status().GetMessage(), " is forbidden: ")
			refused++
		}
		if !slices.Equal(faultsOf(want), faultsOf(got)) {
			t.Fatalf("%v\n%v\nKubernetes %s\nMonoplane  %s", k.Spec.Resources, rng.Spec, want, got)
		}
	}
	if *count >= 100 && (refused < *count/10 || refused > *count*99/100) {
		t.Errorf("%d of %d were refused", refused, *count)
	}
}

func hugeWhole(k *v1.Pod) bool {
	if k.Spec.Resources == nil {
		return false
	}
	huge := func(l v1.ResourceList) bool {
		for name := range l {
			if strings.HasPrefix(string(name), "hugepages-") {
				return true
			}
		}
		return false
	}
	return huge(k.Spec.Resources.Requests) || huge(k.Spec.Resources.Limits)
}

// What is wrong with a range or a quota is the same. spec: OBJ-3
func TestRangesAndQuotasAreJudgedTheSame(t *testing.T) {
	r := random(t)
	wrong := 0
	for range *count {
		var theirs, mine []string
		if r.IntN(2) == 0 {
			k := oddLimits(r)
			o, err := ours(k, &corev1.LimitRange{})
			if err != nil {
				t.Fatal(err)
			}
			ourcore.DefaultLimitRange(o)
			corev1conversion.SetObjectDefaults_LimitRange(k)
			var internal core.LimitRange
			if err := corev1conversion.Convert_v1_LimitRange_To_core_LimitRange(k, &internal, nil); err != nil {
				t.Fatal(err)
			}
			theirs, mine = toldFaults(validation.ValidateLimitRange(&internal)), toldHere(ourcore.ValidateLimitRange(o))
		} else {
			k := randomQuota(r)
			for range r.IntN(3) {
				k.Spec.Hard[v1.ResourceName(pick(r, []string{"storage", "a", "A B", "example.com/gpu", "pods", "count/x.y",
					"hugepages-2Mi", "a/b/c"}))] = resource.MustParse(pick(r, []string{"-1", "1500m", "1"}))
			}
			if r.IntN(3) == 0 {
				k.Spec.Scopes = append(k.Spec.Scopes, pick(r, []v1.ResourceQuotaScope{"Odd", "BestEffort", "NotBestEffort"}))
			}
			if s := k.Spec.ScopeSelector; s != nil && r.IntN(2) == 0 {
				s.MatchExpressions[0].Operator = pick(r, []v1.ScopeSelectorOperator{"In", "NotIn", "Exists", "Odd"})
			}
			k.Status = v1.ResourceQuotaStatus{}
			o, err := ours(k, &corev1.ResourceQuota{})
			if err != nil {
				t.Fatal(err)
			}
			ourcore.DefaultResourceQuota(o)
			var internal core.ResourceQuota
			if err := corev1conversion.Convert_v1_ResourceQuota_To_core_ResourceQuota(k, &internal, nil); err != nil {
				t.Fatal(err)
			}
			theirs, mine = toldFaults(validation.ValidateResourceQuota(&internal)), toldHere(ourcore.ValidateResourceQuota(o))
		}
		if !slices.Equal(theirs, mine) {
			t.Fatalf("Kubernetes %q\nMonoplane  %q", theirs, mine)
		}
		if len(theirs) > 0 {
			wrong++
		}
	}
	if *count >= 100 && (wrong < *count/10 || wrong == *count) {
		t.Errorf("%d of %d were wrong", wrong, *count)
	}
}

// oddLimits are limits of which some mean nothing.
func oddLimits(r *rand.Rand) *v1.LimitRange {
	k := randomLimits(r)
	for i := range k.Spec.Limits {
		item := &k.Spec.Limits[i]
		if r.IntN(3) == 0 {
			item.Type = pick(r, []v1.LimitType{"Pod", "PersistentVolumeClaim", "Odd", "a/b", ""})
		}
		for _, l := range []v1.ResourceList{item.Min, item.Max, item.Default, item.MaxLimitRequestRatio} {
			if r.IntN(3) == 0 && l != nil {
				l[v1.ResourceName(pick(r, []string{"a", "storage", "hugepages-2Mi", "A B", "pods"}))] = resource.MustParse("1")
			}
		}
	}
	return k
}

// toldFaults are the types and fields of faults, in order, each once: values are shown shorter here.
func toldFaults(faults field.ErrorList) []string {
	var out []string
	for _, f := range faults {
		out = append(out, string(f.Type)+" "+f.Field)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func toldHere(causes []apierrors.Cause) []string {
	var out []string
	for _, c := range causes {
		out = append(out, c.Type+" "+c.Field)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
