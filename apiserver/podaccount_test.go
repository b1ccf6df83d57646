package apiserver_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// A pod's service account must be there.
func TestPodsNeedTheirAccount(t *testing.T) {
	c := start(t)
	pod := newPod("p")
	pod.Spec.ServiceAccountName = "builder"
	_, err := c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: pod})
	const want = `pods "p" is forbidden: error looking up service account default/builder: ` +
		`serviceaccount "builder" not found`
	if !apierrors.Is(err, apierrors.Forbidden) || err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, expected %s", err, want)
	}
	c.account("builder")
	p := must(c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: pod}))(t)
	if p.Spec.ServiceAccountName != "builder" || p.Spec.ServiceAccount != "builder" {
		t.Errorf("runs as %q, %q", p.Spec.ServiceAccountName, p.Spec.ServiceAccount)
	}
	p = must(c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: newPod("q")}))(t)
	if p.Spec.ServiceAccountName != "default" || p.Spec.ServiceAccount != "default" {
		t.Errorf("runs as %q, %q", p.Spec.ServiceAccountName, p.Spec.ServiceAccount)
	}
}

// The default account of a new namespace is waited for, since a controller makes it, but not for ever.
func TestPodsWaitForTheDefaultAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := apitest.StartWith(t, apitest.Config{NoAccounts: true}).Admin()
		pod := func(name, account string) error {
			p := newPod(name)
			p.Spec.ServiceAccountName = account
			_, err := c.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: p})
			return err
		}
		began := time.Now()
		if err := pod("never", ""); !apierrors.Is(err, apierrors.Forbidden) || time.Since(began) > 5*time.Second {
			t.Errorf("an account that never comes: %v after %v", err, time.Since(began))
		}
		began = time.Now()
		if err := pod("other", "other"); !apierrors.Is(err, apierrors.Forbidden) || time.Since(began) != 0 {
			t.Errorf("an account that nobody makes: %v after %v", err, time.Since(began))
		}
		done := make(chan error, 1)
		go func() { done <- pod("soon", "") }()
		time.Sleep(500 * time.Millisecond)
		if _, err := c.ServiceAccounts.Create(t.Context(), &corev1rpc.CreateServiceAccountRequest{
			Object: &corev1.ServiceAccount{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "default"}},
		}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("an account that comes soon: %v", err)
		}
		// A namespace that is not there is not waited for.
		p := newPod("p")
		p.Metadata.Namespace = "nowhere"
		_, err := c.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: p})
		if !apierrors.Is(err, apierrors.NotFound) || !strings.Contains(err.Error(), `namespaces "nowhere" not found`) {
			t.Errorf("a namespace that is not there: %v", err)
		}
	})
}

// Pods get a volume with a token of their account, and share it.
func TestPodsGetATokenVolume(t *testing.T) {
	c := start(t)
	c.account("builder")
	const path = "/var/run/secrets/kubernetes.io/serviceaccount"
	make := func(name string, change func(*corev1.PodSpec)) *corev1.Pod {
		p := newPod(name)
		p.Spec.ServiceAccountName = "builder"
		p.Spec.InitContainers = []*corev1.Container{{Name: "init", Image: "host"}}
		change(p.Spec)
		must(c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p}))(t)
		return must(c.admin().Pods.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: name}))(t)
	}
	first, second := make("first", func(*corev1.PodSpec) {}), make("second", func(*corev1.PodSpec) {})
	if len(first.Spec.Volumes) != 1 || len(first.Spec.Volumes[0].GetVolumeSource().GetProjected().GetSources()) != 3 ||
		!strings.HasPrefix(first.Spec.Volumes[0].Name, "kube-api-access-") {
		t.Fatalf("volumes %v", first.Spec.Volumes)
	}
	if first.Spec != second.Spec {
		t.Error("two pods of one description do not share their spec")
	}
	for _, list := range [][]*corev1.Container{first.Spec.Containers, first.Spec.InitContainers} {
		if m := list[0].VolumeMounts; len(m) != 1 || m[0].MountPath != path || !m[0].ReadOnly ||
			m[0].Name != first.Spec.Volumes[0].Name {
			t.Errorf("container %s mounts %v", list[0].Name, m)
		}
	}
	none := make("none", func(s *corev1.PodSpec) { s.AutomountServiceAccountToken = ptr(false) })
	if len(none.Spec.Volumes) != 0 || len(none.Spec.Containers[0].VolumeMounts) != 0 {
		t.Errorf("a pod that wants no token got %v", none.Spec.Volumes)
	}
}
