//go:build kubernetes

package oracle

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/security/apparmor"
	"k8s.io/kubernetes/pkg/securitycontext"
)

func theirRestrictions(_ testing.TB, k *v1.Pod) restricted {
	c := &k.Spec.Containers[0]
	context := securitycontext.DetermineEffectiveSecurityContext(k, c)
	masked := securitycontext.ConvertToRuntimeMaskedPaths(context.ProcMount)
	return restricted{
		Context: context, NoNewPrivileges: securitycontext.AddNoNewPrivileges(context),
		ReadonlyPaths: securitycontext.ConvertToRuntimeReadonlyPaths(context.ProcMount),
		// Those of each processor are of the machine that the test runs on.
		MaskedPaths: slices.DeleteFunc(slices.Clone(masked), func(path string) bool {
			return strings.HasPrefix(path, "/sys/devices/system/cpu/cpu")
		}),
		AppArmor: apparmor.GetProfile(k, c),
	}
}
