package nodeagent_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
)

const dockerConfig = "kubernetes.io/dockerconfigjson"

// login is what a Secret of type dockerConfig holds for r.example.com.
func login(user, password string) map[string]string {
	return map[string]string{".dockerconfigjson": `{"auths":{"r.example.com":{"username":"` + user + `","password":"` +
		password + `"}}}`}
}

// privately makes a pod of an image of r.example.com with a pull policy and Secrets.
func privately(policy string, secrets ...string) podOption {
	return edit(func(p *corev1.Pod) {
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "r.example.com/app:1", policy
		for _, name := range secrets {
			p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, &corev1.LocalObjectReference{Name: name})
		}
	})
}

// pulled returns with what images were pulled since it was asked last.
func (r *watched) pulled() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.pulls
	r.pulls = nil
	return out
}

// inPrivateWorld is inWatchedWorld on a machine that keeps records, with a registry that lets in user "right" alone
// and Secrets of both users.
func inPrivateWorld(t *testing.T, f func(w *world, rt *watched)) {
	t.Helper()
	inWatchedWorld(t, func(w *world, rt *watched, _ *logBuffer) {
		w.cfg.Simulated, w.cfg.PodsDir, w.cfg.StateDir = false, w.t.TempDir(), w.t.TempDir()
		rt.answer = func(auth *runtimeapi.AuthConfig) error {
			if auth.GetUsername() != "right" {
				return errors.New("401")
			}
			return nil
		}
		w.secret("right", dockerConfig, login("right", "password"))
		w.secret("wrong", dockerConfig, login("wrong", "password"))
		f(w, rt)
	})
}

func (w *world) pulls(rt *watched, why string, want ...string) {
	w.t.Helper()
	if got := rt.pulled(); !slices.Equal(got, want) {
		w.t.Errorf("%s: pulled with %q, want %q", why, got, want)
	}
}

// An image that was pulled with credentials is for pods that have some for it, too; the others are told what they
// would be told if it were not there. What the node remembers of that survives its agent. spec: CTR-6
func TestImagesOfOthers(t *testing.T) {
	inPrivateWorld(t, func(w *world, rt *watched) {
		w.start()
		w.create("before", privately("IfNotPresent"))
		w.settle()
		w.phase("before", "Running")
		w.pulls(rt, "the image was there before")

		w.create("owner", privately("Always", "right"))
		w.settle()
		w.phase("owner", "Running")
		w.pulls(rt, "the policy is Always", "right:password")

		for range 2 {
			w.create("never", privately("Never"))
			w.create("nobody", privately("IfNotPresent"))
			w.settle()
			w.waitsFor("never", "ErrImageNeverPull",
				`Container image "r.example.com/app:1" is not present with pull policy of Never`)
			w.waitsFor("nobody", "ErrImagePull", "401")
			w.pulls(rt, "a pod without credentials", ":")
			w.create("stranger", privately("IfNotPresent", "wrong"))
			w.settle()
			w.waitsFor("stranger", "ErrImagePull", "401")
			w.pulls(rt, "a pod with credentials that are not good", "wrong:password")
			w.create("same", privately("IfNotPresent", "wrong", "right"))
			w.settle()
			w.phase("same", "Running")
			w.create("allowed", privately("Never", "right"))
			w.settle()
			w.phase("allowed", "Running")
			w.pulls(rt, "pods with the same Secret")

			for _, name := range []string{"never", "nobody", "stranger", "same", "allowed"} {
				w.delete(name, 0)
			}
			w.settle()
			w.kill()
			w.start()
			rt.pulled()
		}

		w.secret("copy", dockerConfig, login("right", "password"))
		w.create("copy", privately("Never", "copy"))
		w.settle()
		w.phase("copy", "Running")
		w.pulls(rt, "another Secret with the same credentials")
	})
}

// An image of which it is not known whether a pull with credentials has brought it is not given away, not by another
// of its names and not after a crash; one whose pull has failed is as it was before. spec: SAFE-4
func TestPullsWithUnknownOutcome(t *testing.T) {
	inPrivateWorld(t, func(w *world, rt *watched) {
		w.start()
		failure := status.Error(codes.Unknown, "403")
		rt.answer = func(*runtimeapi.AuthConfig) error { return failure }
		w.create("refused", privately("Always", "right"))
		w.settle()
		w.waitsFor("refused", "ErrImagePull", "403")
		w.create("before", privately("Never"))
		w.settle()
		w.phase("before", "Running")
		w.delete("refused", 0)

		failure = status.Error(codes.Unavailable, "the runtime has gone")
		w.create("unclear", privately("Always", "right"))
		w.settle()
		w.delete("unclear", 0)
		w.settle()
		w.kill()
		w.start()
		w.create("never", privately("Never"))
		w.create("owner", privately("Never", "right"))
		w.settle()
		w.waitsFor("never", "ErrImageNeverPull",
			`Container image "r.example.com/app:1" is not present with pull policy of Never`)
		w.waitsFor("owner", "ErrImageNeverPull",
			`Container image "r.example.com/app:1" is not present with pull policy of Never`)

		rt.answer = nil
		w.create("anew", privately("Always", "right"))
		w.settle()
		w.phase("anew", "Running")
		left, err := filepath.Glob(filepath.Join(w.cfg.StateDir, "image_manager/pulling/*"))
		if err != nil || len(left) > 0 {
			w.t.Errorf("notes of pulls that are over: %q, %v", left, err)
		}
	})
}

// A node that cannot write down whose image it is does not pull it. spec: SAFE-4
func TestRecordsCannotBeWritten(t *testing.T) {
	inPrivateWorld(t, func(w *world, rt *watched) {
		if err := os.WriteFile(filepath.Join(w.cfg.StateDir, "image_manager"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		w.start()
		w.create("a", privately("Always", "right"))
		w.settle()
		if state := w.get("a").GetStatus().GetContainerStatuses()[0].GetState(); state.GetWaiting().GetReason() !=
			"ErrImagePull" {
			t.Errorf("state: %v", state)
		}
		w.pulls(rt, "nothing can be noted")
	})
}

// A registry that does not answer is the reason, said once, whether or not the runtime says what its word for it
// means.
func TestRegistryIsUnavailable(t *testing.T) {
	for _, said := range []string{"Get x", "the registry is unavailable: Get x"} {
		inPrivateWorld(t, func(w *world, rt *watched) {
			rt.answer = func(*runtimeapi.AuthConfig) error { return status.Error(codes.Unknown, "RegistryUnavailable: "+said) }
			w.start()
			w.create("a", privately("Always", "right"))
			w.settle()
			w.waitsFor("a", "RegistryUnavailable",
				"image pull failed for r.example.com/app:1 because the registry is unavailable: Get x")
		})
	}
}
