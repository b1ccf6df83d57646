//go:build kubernetes

package oracle

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	qosclass "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/qos"
)

// theirScores are those of the init containers and then the others of a pod, on a node with so much memory.
func theirScores(_ testing.TB, k *v1.Pod, memory int64) (scores []int64) {
	for _, c := range slices.Concat(k.Spec.InitContainers, k.Spec.Containers) {
		scores = append(scores, int64(qos.GetContainerOOMScoreAdjust(k, &c, memory)))
	}
	return scores
}

func theirLimits(_ testing.TB, k *v1.Pod) podLimits {
	return limitsOf(k, false, kubeletconfig.NoneMemoryReservationPolicy)
}

func theirLimitsOfVersionTwo(_ testing.TB, k *v1.Pod) podLimits {
	return limitsOf(k, true, kubeletconfig.TieredReservationMemoryReservationPolicy)
}

func limitsOf(k *v1.Pod, reserve bool, policy kubeletconfig.MemoryReservationPolicy) podLimits {
	c := cm.ResourceConfigForPod(k, true, cm.QuotaPeriod, reserve, policy)
	return podLimits{CPUShares: *c.CPUShares, CPUQuota: c.CPUQuota, Memory: c.Memory, HugePageLimit: c.HugePageLimit,
		Unified: c.Unified, Class: string(qosclass.GetPodQOS(k))}
}

// theirShares are the shares and the quota of a request and a limit in thousandths of a processor.
func theirShares(_ testing.TB, request, limit int64) [2]int64 {
	return [2]int64{int64(cm.MilliCPUToShares(request)), cm.MilliCPUToQuota(limit, cm.QuotaPeriod)}
}
