package apiserver_test

import (
	"strings"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/rules/portion"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

const templateGeneration = "deprecated.daemonset.template.generation"

func newDaemonSet(name string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:     &appsv1.DaemonSetSpec{Selector: webSelector(), Template: webTemplate()},
		Status:   &appsv1.DaemonSetStatus{DesiredNumberScheduled: 9},
	}
}

// spec: WORK-1, OBJ-5
func TestDaemonSetsAreFilledIn(t *testing.T) {
	c := start(t).admin()
	d := must(c.DaemonSets.Create(ctx(t), &appsv1rpc.CreateDaemonSetRequest{Object: newDaemonSet("web")}))(t)
	s := d.Spec
	if s.UpdateStrategy.Type != "RollingUpdate" || s.GetRevisionHistoryLimit() != 10 ||
		s.UpdateStrategy.RollingUpdate.MaxUnavailable.IntVal != 1 || s.UpdateStrategy.RollingUpdate.MaxSurge == nil ||
		s.Template.Spec.RestartPolicy != "Always" || d.Status.DesiredNumberScheduled != 0 || d.Metadata.Generation != 1 ||
		d.Metadata.Annotations[templateGeneration] != "1" {
		t.Errorf("made %v", d)
	}
	update := func(change func(*appsv1.DaemonSet)) (*appsv1.DaemonSet, error) {
		next := clone(d)
		change(next)
		return c.DaemonSets.Update(ctx(t), &appsv1rpc.UpdateDaemonSetRequest{Object: next})
	}
	_, err := update(func(d *appsv1.DaemonSet) { d.Spec.Selector.MatchLabels = map[string]string{"tier": "front"} })
	if !apierrors.Is(err, apierrors.Invalid) || !strings.Contains(err.Error(), "spec.selector") {
		t.Errorf("the selector may change: %v", err)
	}
	// What is not of the template leaves the count of templates alone, whatever the client says it is.
	d = must(update(func(d *appsv1.DaemonSet) {
		d.Spec.MinReadySeconds, d.Status = 5, &appsv1.DaemonSetStatus{NumberReady: 3}
		d.Metadata.Annotations[templateGeneration] = "7"
	}))(t)
	if d.Status.NumberReady != 0 || d.Metadata.Generation != 2 || d.Metadata.Annotations[templateGeneration] != "1" {
		t.Errorf("updated to %v", d)
	}
	d = must(update(func(d *appsv1.DaemonSet) {
		d.Spec.Template.Spec.Containers[0].Image = "nginx:2"
		d.Metadata.Annotations = nil
	}))(t)
	if d.Metadata.Generation != 3 || d.Metadata.Annotations[templateGeneration] != "2" {
		t.Errorf("the template was updated to %v", d)
	}
	told := clone(d)
	told.Spec.MinReadySeconds, told.Status = 0, &appsv1.DaemonSetStatus{NumberReady: 1, CollisionCount: ptr(int32(2))}
	told = must(c.DaemonSets.UpdateStatus(ctx(t), &appsv1rpc.UpdateDaemonSetRequest{Object: told}))(t)
	if told.Spec.MinReadySeconds != 5 || told.Status.NumberReady != 1 || told.Metadata.Generation != 3 {
		t.Errorf("the status was updated to %v", told)
	}
	for path, change := range map[string]func(*appsv1.DaemonSetStatus){
		"status.numberReady":    func(s *appsv1.DaemonSetStatus) { s.NumberReady = -1 },
		"status.collisionCount": func(s *appsv1.DaemonSetStatus) { s.CollisionCount = nil },
	} {
		bad := clone(told)
		change(bad.Status)
		_, err := c.DaemonSets.UpdateStatus(ctx(t), &appsv1rpc.UpdateDaemonSetRequest{Object: bad})
		if !apierrors.Is(err, apierrors.Invalid) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	restored := newDaemonSet("restored")
	restored.Metadata.Annotations = map[string]string{templateGeneration: "4"}
	restored = must(c.DaemonSets.Create(ctx(t), &appsv1rpc.CreateDaemonSetRequest{Object: restored}))(t)
	if restored.Metadata.Annotations[templateGeneration] != "4" {
		t.Errorf("the count of a backup became %q", restored.Metadata.Annotations[templateGeneration])
	}
}

// spec: OBJ-3
func TestBadDaemonSetsAreRefused(t *testing.T) {
	c := start(t).admin()
	rolling := func(unavailable, surge *metav1.IntOrString) func(*appsv1.DaemonSet) {
		return func(d *appsv1.DaemonSet) {
			d.Spec.UpdateStrategy = &appsv1.DaemonSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateDaemonSet{
				MaxUnavailable: unavailable, MaxSurge: surge,
			}}
		}
	}
	one := &metav1.IntOrString{IntVal: 1}
	for name, x := range map[string]struct {
		change func(*appsv1.DaemonSet)
		want   string
	}{
		"a selector that its template does not match": {func(d *appsv1.DaemonSet) {
			d.Spec.Selector.MatchLabels["app"] = "other"
		}, "spec.template.metadata.labels"},
		"no selector":       {func(d *appsv1.DaemonSet) { d.Spec.Selector = nil }, "`selector` does not match template `labels`"},
		"an empty selector": {func(d *appsv1.DaemonSet) { d.Spec.Selector = &metav1.LabelSelector{} }, "empty selector"},
		"pods that end":     {func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.RestartPolicy = "Never" }, "restartPolicy"},
		"a deadline": {func(d *appsv1.DaemonSet) {
			d.Spec.Template.Spec.ActiveDeadlineSeconds = ptr(int64(1))
		}, "activeDeadlineSeconds in DaemonSet is not Supported"},
		"no room for steps": {rolling(portion.Text("0%"), nil), "cannot be 0 when maxSurge is 0"},
		"room of two kinds": {rolling(one, one), "may not be set when maxUnavailable is non-zero"},
		"more than all":     {rolling(portion.Text("101%"), nil), "must not be greater than 100%"},
		"an unknown way": {func(d *appsv1.DaemonSet) {
			d.Spec.UpdateStrategy = &appsv1.DaemonSetUpdateStrategy{Type: "Recreate"}
		}, "spec.updateStrategy: Unsupported value"},
		"a count that is no number": {func(d *appsv1.DaemonSet) {
			d.Metadata.Annotations = map[string]string{templateGeneration: "x"}
		}, "metadata.annotations[" + templateGeneration + "]"},
	} {
		d := newDaemonSet("bad")
		x.change(d)
		_, err := c.DaemonSets.Create(ctx(t), &appsv1rpc.CreateDaemonSetRequest{Object: d})
		if !apierrors.Is(err, apierrors.Invalid) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
