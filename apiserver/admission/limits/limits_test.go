package limits_test

import (
	"strings"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/admission/limits"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func quantities(pairs ...string) map[string]*metav1.Quantity {
	m := map[string]*metav1.Quantity{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &metav1.Quantity{String_: pairs[i+1]}
	}
	return m
}

func ranges(items ...*corev1.LimitRangeItem) *corev1.LimitRange {
	return &corev1.LimitRange{Spec: &corev1.LimitRangeSpec{Limits: items}}
}

// pod has a container and an init container that ask for this.
func pod(requests, most []string) *corev1.Pod {
	of := func(name string) []*corev1.Container {
		r := &corev1.ResourceRequirements{}
		if requests != nil {
			r.Requests = quantities(requests...)
		}
		if most != nil {
			r.Limits = quantities(most...)
		}
		return []*corev1.Container{{Name: name, Resources: r}}
	}
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "p"},
		Spec:     &corev1.PodSpec{Containers: of("main"), InitContainers: of("init")},
	}
}

func claim(pairs ...string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Name: "c"},
		Spec: &corev1.PersistentVolumeClaimSpec{
			Resources: &corev1.VolumeResourceRequirements{Requests: quantities(pairs...)},
		},
	}
}

// Containers without requests and limits are given some, and the pod says so. spec: OBJ-2
func TestComplete(t *testing.T) {
	r := ranges(
		&corev1.LimitRangeItem{Type: "Container", DefaultRequest: quantities("cpu", "100m", "memory", "1Mi"),
			Default: quantities("cpu", "200m")},
		&corev1.LimitRangeItem{Type: "Pod", Max: quantities("cpu", "1")},
	)
	p := pod([]string{"cpu", "50m"}, nil)
	p.Metadata.Annotations = map[string]string{"mine": "stays"}
	annotations := p.Metadata.Annotations
	limits.Complete(p, r)
	for _, c := range append(p.Spec.Containers, p.Spec.InitContainers...) {
		if c.Resources.Requests["cpu"].String_ != "50m" || c.Resources.Requests["memory"].String_ != "1Mi" ||
			c.Resources.Limits["cpu"].String_ != "200m" || len(c.Resources.Limits) != 1 {
			t.Errorf("%s: %v", c.Name, c.Resources)
		}
	}
	const want = "LimitRanger plugin set: memory request for container main; cpu limit for container main; " +
		"memory request for init container init; cpu limit for init container init"
	if got := p.Metadata.Annotations["kubernetes.io/limit-ranger"]; got != want ||
		p.Metadata.Annotations["mine"] != "stays" {
		t.Errorf("annotations %v", p.Metadata.Annotations)
	}
	if len(annotations) != 1 {
		t.Error("the annotations that were given are changed in place, which somebody else may hold")
	}
	// What a pod was given is its own: a change of it is none of the range.
	p.Spec.Containers[0].Resources.Limits["cpu"].String_ = "9"
	if r.Spec.Limits[0].Default["cpu"].String_ != "200m" {
		t.Error("a pod shares its amounts with the range")
	}
	full := pod([]string{"cpu", "1", "memory", "1"}, []string{"cpu", "1"})
	limits.Complete(full, r)
	if full.Metadata.Annotations != nil {
		t.Errorf("a pod that says all was given something: %v", full.Metadata.Annotations)
	}
	empty := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{}, Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "a"}}},
	}
	limits.Complete(empty, r)
	if empty.Spec.Containers[0].Resources.Limits["cpu"].String_ != "200m" {
		t.Errorf("a container without resources: %v", empty.Spec.Containers[0])
	}
}

// What does not keep within a range is refused with all that is wrong, each thing once. spec: OBJ-2
func TestCheck(t *testing.T) {
	containers := func(item *corev1.LimitRangeItem) *corev1.LimitRange {
		item.Type = "Container"
		return ranges(item)
	}
	least := &corev1.LimitRangeItem{Min: quantities("cpu", "100m")}
	most := &corev1.LimitRangeItem{Max: quantities("cpu", "1")}
	ratio := &corev1.LimitRangeItem{MaxLimitRequestRatio: quantities("cpu", "2")}
	whole := ranges(&corev1.LimitRangeItem{Type: "Pod", Max: quantities("memory", "1Gi")})
	claims := ranges(&corev1.LimitRangeItem{
		Type: "PersistentVolumeClaim", Min: quantities("storage", "1Gi"), Max: quantities("storage", "2Gi"),
	})
	for name, c := range map[string]struct {
		o    object.Object
		r    *corev1.LimitRange
		want string
	}{
		"enough": {pod([]string{"cpu", "100m"}, nil), containers(least), ""},
		"too little": {
			pod([]string{"cpu", "99m"}, nil), containers(least),
			"minimum cpu usage per Container is 100m, but request is 99m",
		},
		"nothing asked": {
			pod(nil, nil), containers(least),
			"minimum cpu usage per Container is 100m.  No request is specified",
		},
		"limited too low": {
			pod([]string{"cpu", "1"}, []string{"cpu", "1m"}), containers(least),
			"minimum cpu usage per Container is 100m, but limit is 1m",
		},
		"all that may be": {pod(nil, []string{"cpu", "1"}), containers(most), ""},
		"too much": {
			pod(nil, []string{"cpu", "1001m"}), containers(most),
			"maximum cpu usage per Container is 1, but limit is 1001m",
		},
		"without a limit": {
			pod(nil, nil), containers(most),
			"maximum cpu usage per Container is 1.  No limit is specified",
		},
		"asked too much": {
			pod([]string{"cpu", "2"}, []string{"cpu", "1"}), containers(most),
			"maximum cpu usage per Container is 1, but request is 2",
		},
		"twice": {pod([]string{"cpu", "1"}, []string{"cpu", "2"}), containers(ratio), ""},
		"more than twice": {
			pod([]string{"cpu", "1"}, []string{"cpu", "2100m"}), containers(ratio),
			"cpu max limit to request ratio per Container is 2, but provided ratio is 2.100000",
		},
		"no request": {
			pod(nil, []string{"cpu", "1"}), containers(ratio),
			"cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
		},
		"a request of zero": {
			pod([]string{"cpu", "0"}, []string{"cpu", "1"}), containers(ratio),
			"cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
		},
		"no limit": {
			pod([]string{"cpu", "1"}, nil), containers(ratio),
			"cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
		},
		"the pod as a whole": {
			pod(nil, []string{"memory", "2Gi"}), whole,
			"maximum memory usage per Pod is 1Gi, but limit is 2Gi",
		},
		"a claim": {claim("storage", "1Gi"), claims, ""},
		"a small claim": {
			claim("storage", "1Mi"), claims,
			"minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi",
		},
		"a large claim": {
			claim("storage", "3Gi"), claims,
			"maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi",
		},
		"a claim of nothing": {
			claim(), claims,
			"[minimum storage usage per PersistentVolumeClaim is 1Gi.  No request is specified, " +
				"maximum storage usage per PersistentVolumeClaim is 2Gi.  No request is specified]",
		},
		"a pod and a range of claims": {pod(nil, nil), claims, ""},
		"more than fits into thousandths": {
			pod([]string{"cpu", "9223372036854775807"}, []string{"cpu", "9223372036854775807"}), containers(most),
			"maximum cpu usage per Container is 1, but limit is 9223372036854775807",
		},
	} {
		err := limits.Check(c.o, c.r)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !apierrors.Is(err, apierrors.Forbidden) || !strings.HasSuffix(err.Error(), " is forbidden: "+c.want) {
			t.Errorf("%s:\n  %v, want\n  %s", name, err, c.want)
		}
	}
}

// Ranges judge what is new, claims that change and pods that are resized, and nothing that is on its way out.
func TestConcerned(t *testing.T) {
	going := pod(nil, nil)
	going.Metadata.DeletionTimestamp = &metav1.Time{Seconds: 1}
	for name, c := range map[string]struct {
		w    registry.Write
		want bool
	}{
		"a new pod":        {registry.Write{Next: pod(nil, nil)}, true},
		"a pod that is":    {registry.Write{Next: pod(nil, nil), Live: pod(nil, nil)}, false},
		"its size":         {registry.Write{Next: pod(nil, nil), Live: pod(nil, nil), Subresource: "resize"}, true},
		"of one that goes": {registry.Write{Next: going, Live: going, Subresource: "resize"}, false},
		"a claim":          {registry.Write{Next: claim(), Live: claim()}, true},
		"its status":       {registry.Write{Next: claim(), Live: claim(), Subresource: "status"}, false},
		"a secret":         {registry.Write{Next: &corev1.Secret{}}, false},
	} {
		if got := limits.Concerned(c.w); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
