//go:build kubernetes

package oracle

import (
	"context"
	"slices"
	"testing"
	"time"

	apps1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	apipod "k8s.io/kubernetes/pkg/api/pod"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/deployment/util"
	deploystrategy "k8s.io/kubernetes/pkg/registry/apps/deployment"
	setstrategy "k8s.io/kubernetes/pkg/registry/apps/replicaset"
)

func theirDeployment(t testing.TB, k, old *apps1.Deployment) verdict {
	ctx := context.Background()
	now, was := internal(t, k, &apps.Deployment{}), internal(t, old, &apps.Deployment{})
	return verdict{
		Created: theirFaults(deploystrategy.Strategy.Validate(ctx, now)),
		Updated: theirFaults(deploystrategy.Strategy.ValidateUpdate(ctx, now, was)),
	}
}

func theirReplicaSet(t testing.TB, k, old *apps1.ReplicaSet) verdict {
	ctx := context.Background()
	now, was := internal(t, k, &apps.ReplicaSet{}), internal(t, old, &apps.ReplicaSet{})
	return verdict{
		Created: theirFaults(setstrategy.Strategy.Validate(ctx, now)),
		Updated: theirFaults(setstrategy.Strategy.ValidateUpdate(ctx, now, was)),
	}
}

func theirReplicationController(t testing.TB, k, old *v1.ReplicationController) verdict {
	now, was := internal(t, k, &core.ReplicationController{}), internal(t, old, &core.ReplicationController{})
	opts := apipod.GetValidationOptionsFromPodTemplate(now.Spec.Template, nil)
	change := apipod.GetValidationOptionsFromPodTemplate(now.Spec.Template, was.Spec.Template)
	return verdict{
		Created: theirFaults(corevalidation.ValidateReplicationController(now, opts)),
		Updated: theirFaults(corevalidation.ValidateReplicationControllerUpdate(now, was, change)),
	}
}

func theirRanks(_ testing.TB, a, b *v1.Pod, rank []int, ready int32, now time.Time) ranked {
	s := controller.ActivePodsWithRanks{Pods: []*v1.Pod{a, b}, Rank: rank, Now: metav1.NewTime(now)}
	ofJob := controller.ActivePods{a, b}
	return ranked{
		Seems: []bool{controller.IsPodActive(a), controller.IsPodTerminating(a), podutil.IsPodReady(a),
			podutil.IsPodAvailable(a, ready, metav1.NewTime(now))},
		Less: [2]bool{s.Less(0, 1), s.Less(1, 0)}, LessOfJob: [2]bool{ofJob.Less(0, 1), ofJob.Less(1, 0)},
	}
}

func theirSizes(t testing.TB, d *apps1.Deployment, sets []*apps1.ReplicaSet) sizedRollout {
	size, err := util.NewRSNewReplicas(d, sets, sets[0])
	if err != nil {
		t.Fatal(err)
	}
	return sizedRollout{Surge: util.MaxSurge(*d), Missing: util.MaxUnavailable(*d), New: size,
		Found: util.FindNewReplicaSet(d, slices.Clone(sets)).Name}
}

// theirScale does what their controller does when it scales, with its exported helpers.
func theirScale(_ testing.TB, d *apps1.Deployment, sets []*apps1.ReplicaSet) map[string]int32 {
	fresh, old, sizes := sets[0], sets[1:], map[string]int32{}
	for _, rs := range sets {
		sizes[rs.Name] = *rs.Spec.Replicas
	}
	if only := util.FindActiveOrLatest(fresh, slices.Clone(old)); only != nil {
		sizes[only.Name] = *d.Spec.Replicas
		return sizes
	}
	if util.IsSaturated(d, fresh) {
		for _, rs := range controller.FilterActiveReplicaSets(old) {
			sizes[rs.Name] = 0
		}
		return sizes
	}
	all := controller.FilterActiveReplicaSets(append(slices.Clone(old), fresh))
	allowed := int32(0)
	if *d.Spec.Replicas > 0 {
		allowed = *d.Spec.Replicas + util.MaxSurge(*d)
	}
	add, added := allowed-util.GetReplicaCountForReplicaSets(all), int32(0)
	less := controller.ReplicaSetsBySizeOlder(all).Less
	if add > 0 {
		less = controller.ReplicaSetsBySizeNewer(all).Less
	}
	for i := range all { // few: they are sorted by exchanges
		for j := i; j > 0 && less(j, j-1); j-- {
			all[j], all[j-1] = all[j-1], all[j]
		}
	}
	for _, rs := range all {
		part := util.GetReplicaSetProportion(klog.Background(), rs, *d, add, added)
		sizes[rs.Name] = *rs.Spec.Replicas + part
		added += part
	}
	if add != 0 && len(all) > 0 {
		sizes[all[0].Name] = max(0, sizes[all[0].Name]+add-added)
	}
	return sizes
}
