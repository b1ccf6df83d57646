//go:build kubernetes

package oracle

import (
	"encoding/json"
	"testing"
	"time"

	apps1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/controller/history"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/features"
)

// revisionImages returns the image in the template of each revision.
func revisionImages(t testing.TB, all []any) map[string]string {
	images := map[string]string{}
	for _, o := range all {
		revision := o.(*apps1.ControllerRevision)
		var set apps1.StatefulSet
		if err := json.Unmarshal(revision.Data.Raw, &set); err != nil {
			t.Fatal(err)
		}
		images[revision.Name] = set.Spec.Template.Spec.Containers[0].Image
	}
	return images
}

// setKeeper is Kubernetes' control of one StatefulSet, with what it reads and writes.
type setKeeper struct {
	cast      *cast
	revisions appsinformers.ControllerRevisionInformer
	control   statefulset.StatefulSetControlInterface
}

func theirSetStep(t testing.TB, past *course, set *apps1.StatefulSet, there castState, now time.Time) (out castStep) {
	if past.theirs == nil {
		k := &setKeeper{cast: &cast{},
			revisions: informers.NewSharedInformerFactory(fake.NewClientset(), 0).Apps().V1().ControllerRevisions()}
		k.control = statefulset.NewDefaultStatefulSetControl(
			statefulset.NewStatefulPodControlFromManager(k.cast, &record.FakeRecorder{}), k.cast,
			history.NewFakeHistory(k.revisions))
		past.theirs = k
	}
	many := set.Spec.UpdateStrategy.RollingUpdate != nil && set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable != nil
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(
		map[string]bool{string(features.MaxUnavailableStatefulSet): many}); err != nil {
		t.Fatal(err)
	}
	k := past.theirs.(*setKeeper)
	next := there.cast()
	k.cast.pods, k.cast.claims, k.cast.made = next.pods, next.claims, next.made
	k.cast.status = set.Status.DeepCopy()
	var pods []*v1.Pod
	for _, p := range there.cast().pods {
		pods = append(pods, p)
	}
	_, err := k.control.UpdateStatefulSet(t.Context(), set.DeepCopy(), pods, now)
	return castStep{After: castOf(k.cast), Wrong: errorText(err),
		Images: revisionImages(t, k.revisions.Informer().GetStore().List())}
}
