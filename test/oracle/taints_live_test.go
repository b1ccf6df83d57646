//go:build kubernetes

package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"
	"k8s.io/kubernetes/pkg/util/taints"
)

func theirMatchingTolerations(_ testing.TB, of []v1.Taint, tolerations []v1.Toleration) (m matchedTolerations) {
	m.All, m.Used = helper.GetMatchingTolerations(klog.Background(), of, tolerations)
	return m
}

func theirTaints(_ testing.TB, list []string) readTaints {
	all, _, err := taints.ParseTaints(list)
	return readTaints{all, errorText(err)}
}
