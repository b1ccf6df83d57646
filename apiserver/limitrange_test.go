package apiserver_test

import (
	"testing"

	"monoplane.dev/apierrors"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

func newLimitRange(name string, items ...*corev1.LimitRangeItem) *corev1.LimitRange {
	return &corev1.LimitRange{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: &corev1.LimitRangeSpec{Limits: items},
	}
}

// spec: OBJ-3
func TestLimitRangesAreChecked(t *testing.T) {
	ranges := start(t).admin().LimitRanges
	made := must(ranges.Create(ctx(t), &corev1rpc.CreateLimitRangeRequest{Object: newLimitRange("ok",
		&corev1.LimitRangeItem{Type: "Container", Max: quantities("cpu", "2000m"), Min: quantities("memory", "1Mi")},
	)}))(t)
	item := made.Spec.Limits[0]
	if item.Default["cpu"].GetString_() != "2" || item.DefaultRequest["cpu"].GetString_() != "2" ||
		item.DefaultRequest["memory"].GetString_() != "1Mi" {
		t.Errorf("completed: %v", item)
	}
	for want, items := range map[string][]*corev1.LimitRangeItem{
		"spec.limits[0].type: Invalid value: \"Node\": must be a standard limit type or fully qualified": {{Type: "Node"}},
		"spec.limits[1].type: Duplicate value: \"Pod\"":                                                  {{Type: "Pod"}, {Type: "Pod"}},
		"spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1": {
			{Type: "Pod", Min: quantities("cpu", "2"), Max: quantities("cpu", "1")}},
		"spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'": {
			{Type: "Pod", Default: quantities("cpu", "2")}},
		"spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was " +
			"provided": {{Type: "PersistentVolumeClaim"}},
		"spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1": {
			{Type: "Container", MaxLimitRequestRatio: quantities("cpu", "0.5")}},
	} {
		err := second(ranges.Create(ctx(t), &corev1rpc.CreateLimitRangeRequest{Object: newLimitRange("bad", items...)}))
		if got := told(err); !apierrors.Is(err, apierrors.Invalid) || got != `LimitRange "bad" is invalid: `+want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// A range completes and judges what is created in its namespace from its answer on, and as long as it is there.
// spec: OBJ-3
func TestLimitRanges(t *testing.T) {
	c := start(t)
	admin := c.admin()
	must(admin.LimitRanges.Create(ctx(t), &corev1rpc.CreateLimitRangeRequest{Object: newLimitRange("r",
		&corev1.LimitRangeItem{Type: "Container", Min: quantities("cpu", "100m"), Max: quantities("cpu", "2"),
			Default: quantities("cpu", "1"), DefaultRequest: quantities("cpu", "200m", "memory", "1Mi")},
		&corev1.LimitRangeItem{Type: "Pod", MaxLimitRequestRatio: quantities("cpu", "5")},
		&corev1.LimitRangeItem{Type: "PersistentVolumeClaim", Max: quantities("storage", "1Gi")},
	)}))(t)
	p := c.createPod(newPod("silent"))
	r := p.Spec.Containers[0].Resources
	if r.Limits["cpu"].GetString_() != "1" || r.Requests["cpu"].GetString_() != "200m" || r.Limits["memory"] != nil ||
		r.Requests["memory"].GetString_() != "1Mi" || p.Status.QosClass != "Burstable" ||
		p.Metadata.Annotations["kubernetes.io/limit-ranger"] !=
			"LimitRanger plugin set: cpu, memory request for container main; cpu limit for container main" {
		t.Errorf("completed: %v, %s, %v", r, p.Status.QosClass, p.Metadata.Annotations)
	}
	create := func(p *corev1.Pod) string {
		return told(second(admin.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p})))
	}
	for _, one := range []struct{ got, want string }{
		{create(sized("a", []string{"cpu", "50m"}, []string{"cpu", "3"})), `pods "a" is forbidden: [minimum cpu usage ` +
			`per Container is 100m, but request is 50m, maximum cpu usage per Container is 2, but limit is 3, cpu max ` +
			`limit to request ratio per Pod is 5, but provided ratio is 60.000000]`},
		{create(sized("b", []string{"cpu", "200m"}, []string{"cpu", "1100m"})), `pods "b" is forbidden: cpu max limit to ` +
			`request ratio per Pod is 5, but provided ratio is 5.500000`},
		{told(second(admin.PersistentVolumeClaims.Create(ctx(t), &corev1rpc.CreatePersistentVolumeClaimRequest{
			Object: &corev1.PersistentVolumeClaim{Metadata: &metav1.ObjectMeta{Name: "c", Namespace: "default"},
				Spec: &corev1.PersistentVolumeClaimSpec{AccessModes: []string{"ReadWriteOnce"},
					Resources: &corev1.VolumeResourceRequirements{Requests: quantities("storage", "2Gi")}}},
		}))), `persistentvolumeclaims "c" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but ` +
			`request is 2Gi`},
	} {
		if one.got != one.want {
			t.Errorf("got  %s\nwant %s", one.got, one.want)
		}
	}
	resize := clone(p)
	resize.Spec.Containers[0].Resources.Requests["cpu"].String_ = "50m"
	if got := told(second(admin.Pods.UpdateResize(ctx(t), &corev1rpc.UpdatePodRequest{Object: resize}))); got !=
		`pods "silent" is forbidden: [minimum cpu usage per Container is 100m, but request is 50m, cpu max limit to `+
			`request ratio per Pod is 5, but provided ratio is 20.000000]` {
		t.Errorf("to shrink: %s", got)
	}
	must(admin.LimitRanges.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "r"}))(t)
	if p := c.createPod(newPod("free")); len(p.Spec.Containers[0].Resources.GetLimits()) > 0 {
		t.Errorf("completed by nobody: %v", p.Spec.Containers[0].Resources)
	}
}
