//go:build kubernetes

package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
)

// theirClasses are the class that a pod's resources make, and the one that it is of.
func theirClasses(_ testing.TB, k *v1.Pod) [2]string {
	return [2]string{string(qos.ComputePodQOS(k)), string(qos.GetPodQOS(k))}
}

func theirEnded(_ testing.TB, k *v1.Pod) bool { return pod.IsPodTerminal(k) }
