package oracle

import (
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"monoplane.dev/nodeagent/criconfig"
)

// maybe returns a value half of the time.
func maybe[T any](r *rand.Rand, v T) *T {
	if r.IntN(2) == 0 {
		return nil
	}
	return &v
}

// secured returns a pod whose security contexts say anything.
func secured(r *rand.Rand) *v1.Pod {
	p := minimal()
	if r.IntN(4) > 0 {
		p.Spec.SecurityContext = &v1.PodSecurityContext{
			SELinuxOptions: maybe(r, v1.SELinuxOptions{Level: "pod"}), RunAsUser: maybe(r, r.Int64N(3)),
			RunAsGroup: maybe(r, r.Int64N(3)), AppArmorProfile: maybe(r, v1.AppArmorProfile{Type: "Unconfined"}),
			SeccompProfile: maybe(r, v1.SeccompProfile{Type: "RuntimeDefault"}),
		}
	}
	if r.IntN(4) > 0 {
		p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{
			SELinuxOptions: maybe(r, v1.SELinuxOptions{Type: "container"}), RunAsUser: maybe(r, 10+r.Int64N(3)),
			RunAsGroup: maybe(r, 10+r.Int64N(3)), Privileged: maybe(r, r.IntN(2) == 0),
			ReadOnlyRootFilesystem: maybe(r, r.IntN(2) == 0), AllowPrivilegeEscalation: maybe(r, r.IntN(2) == 0),
			ProcMount:       maybe(r, pick(r, []v1.ProcMountType{"Default", "Unmasked"})),
			Capabilities:    maybe(r, v1.Capabilities{Add: []v1.Capability{"A"}, Drop: []v1.Capability{"B", "C"}}),
			AppArmorProfile: maybe(r, v1.AppArmorProfile{Type: "Localhost", LocalhostProfile: ptr("x")}),
		}
	}
	if r.IntN(4) == 0 {
		p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/c": pick(r, []string{
			"runtime/default", "unconfined", "localhost/y", "z"})}
	}
	return p
}

// restricted is what a container may do.
type restricted struct {
	Context                    *v1.SecurityContext
	NoNewPrivileges            bool
	ReadonlyPaths, MaskedPaths []string
	AppArmor                   *v1.AppArmorProfile
}

// What a container may do is what Kubernetes finds by the contexts of the pod and its own. spec: SEC-1
func TestContainersAreRestrictedAlike(t *testing.T) {
	r := random(t)
	for range *count {
		k := secured(r)
		p := ourPod(t, k)
		cfg, err := criconfig.Container(p, p.GetSpec().GetContainers()[0], criconfig.Instance{}, "", "", criconfig.Facts{})
		if err != nil {
			t.Fatal(err)
		}
		answer := ask[restricted](t, "restricted-containers", k)
		got, want := cfg.GetLinux().GetSecurityContext(), answer.Context
		same := got.GetPrivileged() == (want.Privileged != nil && *want.Privileged) &&
			got.GetReadonlyRootfs() == (want.ReadOnlyRootFilesystem != nil && *want.ReadOnlyRootFilesystem) &&
			got.GetNoNewPrivs() == answer.NoNewPrivileges &&
			(got.GetRunAsUser() == nil) == (want.RunAsUser == nil) &&
			(got.GetRunAsGroup() == nil) == (want.RunAsGroup == nil) &&
			(got.GetSelinuxOptions() == nil) == (want.SELinuxOptions == nil) &&
			(got.GetCapabilities() == nil) == (want.Capabilities == nil) &&
			slices.Equal(got.GetReadonlyPaths(), answer.ReadonlyPaths)
		if same && want.RunAsUser != nil {
			same = got.GetRunAsUser().GetValue() == *want.RunAsUser
		}
		if same && want.RunAsGroup != nil {
			same = got.GetRunAsGroup().GetValue() == *want.RunAsGroup
		}
		if same && want.SELinuxOptions != nil {
			same = got.GetSelinuxOptions().GetLevel() == want.SELinuxOptions.Level &&
				got.GetSelinuxOptions().GetType() == want.SELinuxOptions.Type
		}
		if same && want.Capabilities != nil {
			same = len(got.GetCapabilities().GetAddCapabilities()) == len(want.Capabilities.Add) &&
				len(got.GetCapabilities().GetDropCapabilities()) == len(want.Capabilities.Drop)
		}
		// Those of this machine alone, which Kubernetes finds by itself, are told to us.
		ours, theirs := got.GetMaskedPaths(), answer.MaskedPaths
		same = same && (len(ours) == 0) == (len(theirs) == 0)
		for _, path := range ours {
			same = same && slices.Contains(theirs, path)
		}
		same = same && got.GetApparmor().GetLocalhostRef() == profileName(answer.AppArmor) &&
			(got.GetApparmor() == nil) == (answer.AppArmor == nil)
		if !same {
			t.Fatalf("pod %+v\ncontainer %+v\nKubernetes %+v\nMonoplane  %v", k.Spec.SecurityContext,
				k.Spec.Containers[0].SecurityContext, want, got)
		}
	}
}

func profileName(a *v1.AppArmorProfile) string {
	if a == nil || a.LocalhostProfile == nil {
		return ""
	}
	return *a.LocalhostProfile
}
