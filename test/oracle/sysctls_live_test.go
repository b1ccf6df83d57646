//go:build kubernetes

package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/sysctl"
)

// theirAllowedSysctls says what is wrong with a list of parameters that an administrator allows.
func theirAllowedSysctls(t testing.TB, unsafe []string) string {
	_, err := sysctl.NewAllowlist(append(sysctl.SafeSysctlAllowlist(t.Context()), unsafe...))
	return errorText(err)
}

// theirSysctls says why a node that allows some parameters does not take a pod.
func theirSysctls(t testing.TB, unsafe []string, k *v1.Pod) string {
	node, err := sysctl.NewAllowlist(append(sysctl.SafeSysctlAllowlist(t.Context()), unsafe...))
	if err != nil {
		t.Fatal(err)
	}
	verdict := node.Admit(&lifecycle.PodAdmitAttributes{Pod: k})
	if verdict.Admit != (verdict.Message == "") {
		t.Fatalf("admitted %t, with %q", verdict.Admit, verdict.Message)
	}
	return verdict.Message
}
