//go:build rootonly

package e2e_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monoplane.dev/test/containerd"
)

// pullRegistries are registries on a machine with the images box:1, bare:1, which has no shell, and far:1, which is
// for another platform only.
type pullRegistries struct {
	// open is one on a loopback address, private another that wants a password, plain one on an address that is no
	// loopback's, by HTTP, and unnamed another of which the file says nothing.
	open, private, plain, unnamed string
	// file is what --registry-config names. It makes open the mirror of registry.example.
	file string
}

// newPullRegistries serves them on the machine.
func (m *machine) newPullRegistries(t *testing.T) *pullRegistries {
	t.Helper()
	images := emptyRegistry()
	layer, config, err := containerd.Box()
	if err != nil {
		t.Fatal(err)
	}
	_, err = images.image("box", "1", layer, config)
	of, err2 := images.image("far", "it", layer, config)
	err3 := images.list("far", "1", "s390x", of)
	layer, config, err4 := containerd.Bare()
	_, err5 := images.image("bare", "1", layer, config)
	if err := errors.Join(err, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	const address = "192.0.2.7"
	m.run(t, "ip", "addr", "add", address+"/32", "dev", "lo", "scope", "host")
	r := &pullRegistries{open: m.serve(t, "127.0.0.1", images), private: m.serve(t, "127.0.0.1", withPassword(images)),
		plain: m.serve(t, address, images), unnamed: m.serve(t, address, images)}
	r.file = m.registryConfig(t, fmt.Sprintf(`registries:
  registry.example:
    mirrors: ["http://%s"]
  %q:
    plainHTTP: true
`, r.open, r.plain))
	return r
}

// pulls creates pods whose images come, and others whose images do not, and reads why.
//
// spec: CTR-6
func (r *pullRegistries) pulls(t *testing.T, c *cluster, namespace string) {
	on := c.scenes(t, namespace)
	for _, word := range []string{"right", "wrong"} {
		secret, err := pullSecret("pull-"+word, r.private, word)
		if err == nil {
			_, err = c.client(t).CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		image  string
		policy corev1.PullPolicy
		secret string
		// reason and message are why a container cannot have its image; empty if it can.
		reason, message string
	}{
		"open":     {image: r.open + "/box:1"},
		"secret":   {image: r.private + "/box:1", secret: "right"},
		"mirrored": {image: "registry.example/box:1"},
		"plain":    {image: r.plain + "/box:1"},
		"unnamed": {image: r.unnamed + "/box:1", reason: "RegistryUnavailable",
			message: "server gave HTTP response to HTTPS client"},
		"without":  {image: r.private + "/box:1", reason: "ErrImagePull", message: "pull access denied"},
		"wrong":    {image: r.private + "/box:1", secret: "wrong", reason: "ErrImagePull", message: "401 Unauthorized"},
		"absent":   {image: r.open + "/absent:1", reason: "ErrImagePull", message: "not found"},
		"tag":      {image: r.open + "/box:2", reason: "ErrImagePull", message: "not found"},
		"platform": {image: r.open + "/far:1", reason: "ErrImagePull", message: "there are: linux/s390x"},
		"never": {image: r.open + "/never:1", policy: corev1.PullNever, reason: "ErrImageNeverPull",
			message: "is not present with pull policy of Never"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := withRestart(podOf("pull-"+name, "exec sleep 3600"), corev1.RestartPolicyAlways)
			p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = tc.image, tc.policy
			if tc.secret != "" {
				p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull-" + tc.secret}}
			}
			if tc.reason == "" {
				// The image of all of them is the same, by digests of several registries.
				id := on.run(t, p).Status.ContainerStatuses[0].ImageID
				repo := strings.TrimSuffix(tc.image, ":1")
				if !regexp.MustCompile("^" + regexp.QuoteMeta(repo) + "@sha256:[0-9a-f]{64}$").MatchString(id) {
					t.Errorf("imageID: %s; want a digest of %s", id, repo)
				}
				on.told(t, p.Name, "Pulled", fmt.Sprintf(`Successfully pulled image "%s" in [0-9.m]+s `+
					`\([0-9.m]+s including waiting\)\. Image size: [1-9][0-9]* bytes\.$`, regexp.QuoteMeta(tc.image)))
				return
			}
			on.create(t, p)
			on.told(t, p.Name, "(Failed|ErrImageNeverPull)", regexp.QuoteMeta(tc.message))
			on.until(t, p.Name, tc.reason, func(p *corev1.Pod) bool {
				for _, s := range p.Status.ContainerStatuses {
					// Between two attempts it waits for the next one, and says why the last has failed.
					if w := s.State.Waiting; w != nil && (w.Reason == tc.reason || w.Reason == "ImagePullBackOff") &&
						strings.Contains(w.Message, tc.message) {
						return true
					}
				}
				return false
			})
		})
	}
}

// noShell runs an image that has no shell, and asks for one.
//
// spec: CTR-4, HOOK-1, PROBE-2
func (r *pullRegistries) noShell(t *testing.T, on scenes, k *kubectl) {
	p := withRestart(podOf("bare", ""), corev1.RestartPolicyAlways)
	sh := &corev1.ExecAction{Command: []string{"sh", "-c", "true"}}
	main := &p.Spec.Containers[0]
	main.Image, main.Command = r.open+"/bare:1", nil
	main.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: sh}, PeriodSeconds: 1}
	main.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: sh}}
	p = on.run(t, p)
	const said = `"sh": executable file not found in \$PATH`
	on.told(t, p.Name, "Unhealthy", "Readiness probe .*"+said)
	eventually(t, "kubectl exec says that there is no shell", func() (bool, string) { // A busy machine may be too late.
		out, code := k.run(t, "", "exec", p.Name, "--", "sh", "-c", "true")
		return code != 0 && regexp.MustCompile(said).MatchString(out), out
	})
	on.delete(t, p.Name, -1)
	on.told(t, p.Name, "FailedPreStopHook", "PreStopHook failed")
	on.untilGone(t, p)
}
