package oracle

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apiserver/kinds/core/pod"
	"monoplane.dev/apiserver/validation"
)

// accountOf is a service account "a" with rules of its own.
func accountOf(r *rand.Rand) *v1.ServiceAccount {
	a := &v1.ServiceAccount{ObjectMeta: meta("a")}
	a.AutomountServiceAccountToken = pick(r, []*bool{nil, nil, ptr(true), ptr(false)})
	if value := pick(r, []string{"", "", "true", "1", "false", "yes"}); value != "" {
		a.Annotations = map[string]string{"kubernetes.io/enforce-mountable-secrets": value}
	}
	for _, name := range []string{"s", "t", "u"} {
		if r.IntN(3) > 0 {
			a.Secrets = append(a.Secrets, v1.ObjectReference{Name: name})
		}
		if r.IntN(3) > 0 {
			a.ImagePullSecrets = append(a.ImagePullSecrets, v1.LocalObjectReference{Name: name})
		}
	}
	return a
}

// withAccount is a pod that runs as "a" and refers to secrets, and has volumes and mounts that may be in the way.
func withAccount(r *rand.Rand) *v1.Pod {
	const mountPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	p := minimal()
	p.Spec.ServiceAccountName = "a"
	p.Spec.AutomountServiceAccountToken = pick(r, []*bool{nil, nil, nil, ptr(true), ptr(false)})
	secret := func() string { return pick(r, []string{"s", "s", "t", "u", "v"}) }
	for r.IntN(3) == 0 {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: secret()})
	}
	for i := range r.IntN(3) {
		v := v1.Volume{Name: fmt.Sprint(pick(r, []string{"v-", "kube-api-access-", "kube-api-access"}), i)}
		if r.IntN(2) == 0 {
			v.Secret = &v1.SecretVolumeSource{SecretName: secret()}
		} else {
			v.EmptyDir = &v1.EmptyDirVolumeSource{}
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
	container := func(name string) v1.Container {
		c := v1.Container{Name: name, Image: "host"}
		if r.IntN(4) == 0 {
			c.Env = []v1.EnvVar{{Name: "E", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
				LocalObjectReference: v1.LocalObjectReference{Name: secret()}, Key: "k"}}}}
		}
		if r.IntN(4) == 0 {
			c.EnvFrom = []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{
				LocalObjectReference: v1.LocalObjectReference{Name: secret()}}}}
		}
		for _, v := range p.Spec.Volumes {
			if at := pick(r, []string{"", "/x/" + v.Name, mountPath, mountPath + "/"}); at != "" {
				c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: at})
			}
		}
		return c
	}
	p.Spec.Containers = nil
	for i := range 1 + r.IntN(3) {
		p.Spec.Containers = append(p.Spec.Containers, container(fmt.Sprint("c", i)))
	}
	for i := range r.IntN(3) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, container(fmt.Sprint("i", i)))
	}
	return p
}

// admitted is a pod as Kubernetes' admission lets it be created, unless it refuses to.
type admitted struct {
	Refused string
	Pod     *v1.Pod
}

// A pod gets of its service account, or is refused because of it, what Kubernetes' admission gives it.
func TestServiceAccountsGivePodsTheSame(t *testing.T) {
	r := random(t)
	given, refused := 0, 0
	for range min(*count, 2000) {
		account, p := accountOf(r), withAccount(r)
		theirs := ask[admitted](t, "serviceaccount-admissions", account, p)
		mine, convertErr := ours(p, &corev1.Pod{})
		if convertErr != nil {
			t.Fatal(convertErr)
		}
		a, convertErr := ours(account, &corev1.ServiceAccount{})
		if convertErr != nil {
			t.Fatal(convertErr)
		}
		myErr := pod.ApplyServiceAccount(mine, a)
		if (theirs.Refused == "") != (myErr == nil) || myErr != nil && !strings.HasSuffix(myErr.Error(), theirs.Refused) {
			t.Fatalf("%q by Kubernetes, %v by Monoplane\n%v\n%v", theirs.Refused, myErr, account, p.Spec)
		}
		if myErr != nil {
			refused++
			continue
		}
		given++
		admittedPod := ourPod(t, theirs.Pod)
		pod.Default(admittedPod)
		pod.Default(mine)
		want := admittedPod.Spec
		for _, part := range []func(*corev1.PodSpec) *corev1.PodSpec{
			func(s *corev1.PodSpec) *corev1.PodSpec { return &corev1.PodSpec{ImagePullSecrets: s.ImagePullSecrets} },
			func(s *corev1.PodSpec) *corev1.PodSpec { return &corev1.PodSpec{Volumes: s.Volumes} },
			func(s *corev1.PodSpec) *corev1.PodSpec { return &corev1.PodSpec{Containers: s.Containers} },
			func(s *corev1.PodSpec) *corev1.PodSpec { return &corev1.PodSpec{InitContainers: s.InitContainers} },
		} {
			if theirs, my := part(want), part(mine.Spec); !validation.Equal(theirs, my) {
				t.Fatalf("%v by Kubernetes, %v by Monoplane\n%v\n%v", theirs, my, account, p.Spec)
			}
		}
	}
	if given == 0 || refused == 0 {
		t.Errorf("%d given, %d refused", given, refused)
	}
}
