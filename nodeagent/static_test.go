package nodeagent_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/pod"
)

// staticName is the name of the static pod "web" on the node of these tests.
const staticName = "web-" + nodeName

const manifest = `
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  terminationGracePeriodSeconds: 7
  containers:
  - name: main
    image: host
    imagePullPolicy: IfNotPresent
`

// ignoringTerm makes the containers of a manifest ignore TERM.
func ignoringTerm(manifest string) string {
	return strings.Replace(manifest, "name: web\n",
		"name: web\n  annotations: {fake.monoplane.dev/ignore-term: \"true\"}\n", 1)
}

// withManifests gives the agent a directory of manifests, which is looked at every 20 s.
func withManifests(w *world) (write func(name, text string)) {
	w.cfg.ManifestDir, w.cfg.StateDir = w.t.TempDir(), w.t.TempDir()
	w.cfg.CompletePod = pod.Complete
	return func(name, text string) {
		path := filepath.Join(w.cfg.ManifestDir, name)
		if text == "" {
			if err := os.Remove(path); err != nil {
				w.t.Fatal(err)
			}
			return
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

// reread waits until the agent has looked at the manifests.
func (w *world) reread() {
	time.Sleep(21 * time.Second)
	synctest.Wait()
}

// A static pod runs, and its mirror shows it; the mirror comes back when it is deleted, and the pod does not notice.
// spec: STATIC-1, NODE-2
func TestStaticPod(t *testing.T) {
	inWorld(t, func(w *world) {
		write := withManifests(w)
		write("web.yaml", manifest)
		w.start()
		w.settle()
		mirror := w.phase(staticName, "Running")
		meta := mirror.GetMetadata()
		a := meta.GetAnnotations()
		if hash := a["kubernetes.io/config.hash"]; len(hash) != 32 || a["kubernetes.io/config.mirror"] != hash ||
			a["kubernetes.io/config.source"] != "file" || a["kubernetes.io/config.seen"] == "" {
			t.Errorf("annotations: %v", a)
		}
		owner := meta.GetOwnerReferences()
		if len(owner) != 1 || owner[0].GetKind() != "Node" || owner[0].GetUid() != w.node().GetMetadata().GetUid() {
			t.Errorf("owners: %v", owner)
		}
		if mirror.GetSpec().GetServiceAccountName() != "" || mirror.GetSpec().GetNodeName() != nodeName {
			t.Errorf("spec: %v", mirror.GetSpec())
		}
		if n := w.runs(); n != 1 {
			t.Fatalf("%d containers run", n)
		}
		for _, grace := range []int64{-1, 0} {
			w.delete(staticName, grace)
			w.settle()
			now := w.phase(staticName, "Running")
			if now.GetMetadata().GetUid() == meta.GetUid() {
				t.Errorf("grace %d: the mirror is still there", grace)
			}
			meta = now.GetMetadata()
		}
		w.expect(staticName, "START main/0 @0s")
	})
}

// An edit of the manifest restarts the pod: the new one begins when the old one has stopped, with its own grace.
// Removal stops it. spec: STATIC-1, TERM-1
func TestStaticPodEdits(t *testing.T) {
	inWorld(t, func(w *world) {
		write := withManifests(w)
		stubborn := ignoringTerm(manifest)
		write("web.yaml", stubborn)
		w.start()
		w.settle()
		before := w.phase(staticName, "Running").GetMetadata()
		write("web.yaml", manifest)
		w.reread() // at 20 s
		time.Sleep(5 * time.Second)
		if got := w.phase(staticName, "Running").GetMetadata().GetUid(); got != before.GetUid() {
			t.Error("the mirror was replaced before the pod had stopped")
		}
		time.Sleep(5 * time.Second)
		now := w.phase(staticName, "Running").GetMetadata()
		if now.GetUid() == before.GetUid() || now.GetAnnotations()["kubernetes.io/config.hash"] ==
			before.GetAnnotations()["kubernetes.io/config.hash"] {
			t.Errorf("the mirror is the old one: %v", now)
		}
		w.expect(staticName, "START main/0 @0s", "TERM main/0 @20s", "KILL main/0 @27s", "EXIT main/0 @27s",
			"START main/0 @27s")
		write("web.yaml", "")
		w.reread()
		time.Sleep(10 * time.Second)
		if w.get(staticName) != nil {
			t.Error("the mirror is left")
		}
		w.empty()
		if left, err := os.ReadDir(filepath.Join(w.cfg.StateDir, "static")); err != nil || len(left) != 0 {
			t.Errorf("left on disk: %v, %v", left, err)
		}
	})
}

// Static pods run before the API answers, and are shown once it does. A restart of the agent adopts them; a manifest
// that has gone meanwhile stops its pod with the pod's own grace. spec: STATIC-1, NODE-2, DEL-10
func TestStaticPodWithoutServer(t *testing.T) {
	inWorld(t, func(w *world) {
		write := withManifests(w)
		write("web.yaml", ignoringTerm(manifest))
		down := func(context.Context, string, any) error {
			return apierrors.New(apierrors.ServiceUnavailable, "down")
		}
		w.api.React(down)
		w.begin()
		w.settle()
		if n := w.runs(); n != 1 {
			t.Fatalf("%d containers run without a server", n)
		}
		w.api.React(nil)
		time.Sleep(time.Minute)
		w.phase(staticName, "Running")

		w.kill()
		w.api.React(down)
		w.begin()
		w.settle()
		w.expect(staticName, "START main/0 @0s")

		w.kill()
		write("web.yaml", "")
		at := time.Since(w.began).Round(100 * time.Millisecond)
		w.begin()
		time.Sleep(10 * time.Second)
		w.expect(staticName, "START main/0 @0s", "TERM main/0 @"+at.String(), "KILL main/0 @"+(at+7*time.Second).String(),
			"EXIT main/0 @"+(at+7*time.Second).String())
		w.api.React(nil)
		time.Sleep(time.Minute)
		if w.get(staticName) != nil {
			t.Error("the mirror is left")
		}
		w.empty()
	})
}

// What is not valid is refused, by name, in the log and as events of the node; what runs goes on while its manifest is
// broken. spec: STATIC-1
func TestStaticPodRefused(t *testing.T) {
	recording(t, func(w *world) {
		write := withManifests(w)
		var said strings.Builder
		var mu sync.Mutex
		w.cfg.Logger = slog.New(slog.NewTextHandler(locked{&mu, &said}, nil))
		write("web.yaml", manifest)
		write("a.yaml", strings.Replace(manifest, "spec:", "spec:\n  serviceAccountName: x", 1))
		write("b.yaml", strings.Replace(manifest, "name: web", "name: Web!", 1))
		write("c.json", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"}}`)
		write("x.yaml", manifest)
		write(".hidden.yaml", strings.Replace(manifest, "name: web", "name: hidden", 1))
		w.start()
		w.settle()
		w.phase(staticName, "Running")
		events := w.events()
		mu.Lock()
		for _, want := range []string{
			"static pods may not refer to serviceaccounts", "metadata.name: Invalid value",
			"expected a Pod or a PodList", "default/" + staticName + " is in manifest",
		} {
			if !strings.Contains(said.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, said.String())
			}
			if !slices.ContainsFunc(events, func(e string) bool {
				return strings.HasPrefix(e, "InvalidManifest: ") && strings.Contains(e, want)
			}) {
				t.Errorf("no event says %q: %q", want, events)
			}
		}
		mu.Unlock()
		write("x.yaml", "")
		write("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {na")
		w.reread()
		if n := w.runs(); n != 1 {
			t.Errorf("%d containers run", n)
		}
		w.expect(staticName, "START main/0 @0s")
	})
}

type locked struct {
	mu *sync.Mutex
	w  *strings.Builder
}

func (l locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// A pod of the API that has the name keeps it; the static pod runs all the same. spec: STATIC-1
func TestStaticPodForeignName(t *testing.T) {
	inWorld(t, func(w *world) {
		write := withManifests(w)
		w.start()
		w.create(staticName)
		w.settle()
		write("web.yaml", manifest)
		w.reread()
		if n := w.runs(); n != 2 {
			t.Errorf("%d containers run", n)
		}
		w.delete(staticName, 0)
		time.Sleep(time.Minute)
		if a := w.phase(staticName, "Running").GetMetadata().GetAnnotations(); a["kubernetes.io/config.mirror"] == "" {
			t.Error("there is no mirror")
		}
	})
}

// A URL gives pods too; while it does not answer, what it gave goes on, also over a restart of the agent. spec:
// STATIC-1
func TestStaticPodURL(t *testing.T) {
	inWorld(t, func(w *world) {
		withManifests(w)
		w.cfg.ManifestDir, w.cfg.ManifestURL = "", "http://manifests.invalid/pods"
		answer := `{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"web"},` +
			`"spec":{"containers":[{"name":"main","image":"host","imagePullPolicy":"IfNotPresent"}]}}]}`
		var mu sync.Mutex
		set := func(s string) {
			mu.Lock()
			defer mu.Unlock()
			answer = s
		}
		w.cfg.ManifestClient = &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if answer == "" {
				return nil, errors.New("no route")
			}
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(answer))}, nil
		})}
		w.start()
		w.settle()
		w.phase(staticName, "Running")
		set("")
		w.reread()
		w.kill()
		w.start()
		w.reread()
		w.phase(staticName, "Running")
		w.expect(staticName, "START main/0 @0s")
		set(`{"apiVersion":"v1","kind":"PodList","items":[]}`)
		w.reread()
		time.Sleep(time.Minute)
		if w.get(staticName) != nil {
			t.Error("the mirror is left")
		}
		w.empty()
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
