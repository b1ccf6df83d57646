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

// usage is what an object takes, whether a quota counts it, which of the quota's resources it takes of, and what it
// would have to say for that.
type usage struct {
	Used    v1.ResourceList
	Matches bool
	Limits  []v1.ResourceName
	Unsaid  string
}

// What objects take, which quotas count them, and what pods must say, is the same. spec: OBJ-2
func TestQuotasCountTheSame(t *testing.T) {
	r := random(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	counted := 0
	for range *count {
		var k taker
		var kind string
		var mine object.Object
		switch r.IntN(4) {
		case 0:
			k, kind, mine = quotaService(r), "services", &corev1.Service{}
		case 1:
			k, kind, mine = quotaClaim(r), "persistentvolumeclaims", &corev1.PersistentVolumeClaim{}
		default:
			k, kind, mine = quotaPod(r, now), "pods", &corev1.Pod{}
		}
		mine = asOurs(t, k, mine)
		q := randomQuota(r)
		theirs := ask[usage](t, "quotas", kind, k, q, now)
		want, got := theirs.Used, quota.Of(mine, now)
		same := len(want) == len(got)
		for name, q := range want {
			have, ok := got[string(name)]
			same = same && ok && have.Cmp(q) == 0
		}
		if !same {
			t.Fatalf("%v\nKubernetes %v\nMonoplane  %v", k, want, got)
		}
		qq, err := ours(q, &corev1.ResourceQuota{})
		if err != nil {
			t.Fatal(err)
		}
		if is := quota.Counts(qq.Spec, mine); is != theirs.Matches {
			t.Fatalf("%v\n%v\ncounted by Kubernetes: %t, by Monoplane: %t", k, q.Spec, theirs.Matches, is)
		}
		if theirs.Matches {
			counted++
		}
		for name := range q.Spec.Hard {
			if quota.Limits(mine.ObjectKind(), string(name)) != slices.Contains(theirs.Limits, name) {
				t.Fatalf("%s of %s: Kubernetes limits %v", name, mine.ObjectKind().Kind, theirs.Limits)
			}
		}
		if missing := quota.Unsaid(quota.UsageOf(qq.Spec.Hard), mine); missing != theirs.Unsaid {
			t.Fatalf("%v\n%v\nunsaid by Kubernetes %q, by Monoplane %q", k, q.Spec, theirs.Unsaid, missing)
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

// rangedPod is what a range says in a pod of what it has completed, and why it refuses the pod.
type rangedPod struct {
	Annotation string
	Refused    []string
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
		if hugeWhole(k) {
			continue // their ranges do not know huge pages of a pod as a whole
		}
		theirs := ask[rangedPod](t, "limitranges-of-pods", k, rng)
		limits.Complete(mine, again)
		if want, got := theirs.Annotation,
			mine.Metadata.Annotations["kubernetes.io/limit-ranger"]; want != got {
			t.Fatalf("%v\n%v\nKubernetes says %q\nMonoplane  says %q", k.Spec, rng.Spec, want, got)
		}
		got := ""
		if err := limits.Check(mine, again); err != nil {
			_, got, _ = strings.Cut(apierrors.From(err).Status().GetMessage(), " is forbidden: ")
			refused++
		}
		if !slices.Equal(theirs.Refused, faultsOf(got)) {
			t.Fatalf("%v\n%v\nKubernetes %q\nMonoplane  %s", k.Spec, rng.Spec, theirs.Refused, got)
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
		want, got := ask[[]string](t, "limitranges-of-claims", k, rng), ""
		if err := limits.Check(mine, ranged); err != nil {
			_, got, _ = strings.Cut(apierrors.From(err).Status().GetMessage(), " is forbidden: ")
			refused++
		}
		if !slices.Equal(want, faultsOf(got)) {
			t.Fatalf("%v\n%v\nKubernetes %q\nMonoplane  %s", k.Spec.Resources, rng.Spec, want, got)
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
			theirs, mine = ask[[]string](t, "limitranges", k), toldHere(ourcore.ValidateLimitRange(o))
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
			theirs, mine = ask[[]string](t, "resourcequotas", k), toldHere(ourcore.ValidateResourceQuota(o))
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

// toldHere are the types and fields of faults, in order, each once: values are shown shorter here.
func toldHere(causes []apierrors.Cause) []string {
	var out []string
	for _, c := range causes {
		out = append(out, c.Type+" "+c.Field)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
