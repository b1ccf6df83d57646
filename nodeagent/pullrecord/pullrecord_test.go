package pullrecord_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/pullrecord"
	"monoplane.dev/nodeagent/pullsecret"
)

const image = "r.example.com/team/app:1"

func credential(name, password string) pullrecord.Secret {
	return pullrecord.SecretOf(pullsecret.Credential{
		Auth: &runtimeapi.AuthConfig{Username: "u", Password: password}, UID: "uid-of-" + name, Namespace: "n", Name: name,
	})
}

func has(all ...pullrecord.Secret) func() []pullrecord.Secret {
	return func() []pullrecord.Secret { return all }
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func policy(verification string, allowed ...string) pullrecord.Policy {
	return pullrecord.Policy{Verification: verification, Allowed: allowed}
}

// Who may use an image that came with credentials, without, or before there was an agent, by policy. spec: CTR-6
func TestPolicies(t *testing.T) {
	for _, c := range []struct {
		policy                     pullrecord.Policy
		before, anonymous, private bool
	}{
		{policy(""), true, true, false},
		{policy(pullrecord.NeverVerifyPreloadedImages), true, true, false},
		{policy(pullrecord.NeverVerify), true, true, true},
		{policy(pullrecord.AlwaysVerify), false, true, false},
		{policy(pullrecord.NeverVerifyAllowlistedImages), false, true, false},
		{policy(pullrecord.NeverVerifyAllowlistedImages, "r.example.com/team/app"), true, true, true},
		{policy(pullrecord.NeverVerifyAllowlistedImages, "r.example.com/team/*"), true, true, true},
		{policy(pullrecord.NeverVerifyAllowlistedImages, "r.example.com/te/*"), false, true, false},
	} {
		do(t, c.policy.Check())
		r := pullrecord.New(filepath.Join(t.TempDir(), "images"), c.policy)
		secret := credential("s", "p")
		do(t, r.Begin(image))
		do(t, r.Succeeded(image, "private", &secret))
		do(t, r.Succeeded(image, "anonymous", nil))
		for id, want := range map[string]bool{"before": c.before, "anonymous": c.anonymous, "private": c.private} {
			if got := r.MayUse(image, &runtimeapi.Image{Id: id}, has()); got != want {
				t.Errorf("%v, %s: %v, want %v", c.policy, id, got, want)
			}
		}
		if !r.MayUse(image, &runtimeapi.Image{Id: "private"}, has(secret)) {
			t.Errorf("%v: a pod with the Secret may not use the image", c.policy)
		}
	}
	for _, wrong := range []pullrecord.Policy{
		policy("Sometimes"), policy("", "r.example.com/x"), policy(pullrecord.NeverVerifyAllowlistedImages, "r/x:1"),
		policy(pullrecord.NeverVerifyAllowlistedImages, "r/*/x"), policy(pullrecord.NeverVerifyAllowlistedImages, "/*"),
		policy(pullrecord.NeverVerifyAllowlistedImages, " r/x"),
	} {
		if wrong.Check() == nil {
			t.Errorf("%v is accepted", wrong)
		}
	}
}

// A Secret counts by where it is, whatever it holds now, and by what it holds, wherever it is; and for the repository
// alone from which the image came with it. spec: CTR-6
func TestSecrets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	r := pullrecord.New(dir, pullrecord.Policy{})
	first := credential("first", "p")
	do(t, r.Begin(image))
	do(t, r.Succeeded(image, "id", &first))
	have := &runtimeapi.Image{Id: "id"}
	for _, c := range []struct {
		what   string
		image  string
		secret pullrecord.Secret
		want   bool
	}{
		{"another Secret", image, credential("second", "q"), false},
		{"the same credentials in another Secret", image, credential("copy", "p"), true},
		{"the same Secret with new credentials", image, credential("first", "new"), true},
		{"what the same Secret has now, in another", image, credential("third", "new"), true},
		{"what is not learned of another repository", "r.example.com/other:1", first, false},
		{"the same repository by another tag", "r.example.com/team/app@sha256:0000", first, true},
	} {
		if got := pullrecord.New(dir, pullrecord.Policy{}).MayUse(c.image, have, has(c.secret)); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	do(t, r.Succeeded(image, "id", nil))
	if !r.MayUse(image, have, has()) {
		t.Error("an image that came without credentials too is not for all")
	}
}

// A record that is broken gives nothing away, and goes when the image is pulled again.
func TestBrokenRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	r := pullrecord.New(dir, pullrecord.Policy{})
	secret := credential("s", "p")
	do(t, r.Begin(image))
	do(t, r.Succeeded(image, "id", &secret))
	files, err := filepath.Glob(filepath.Join(dir, "pulled/sha256-*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	do(t, os.WriteFile(files[0], []byte(`{"imageRef":`), 0o600))
	have := &runtimeapi.Image{Id: "id"}
	if r.MayUse(image, have, has(secret)) || r.MayUse(image, have, has()) {
		t.Error("an image with a broken record may be used")
	}
	do(t, r.Begin(image))
	do(t, r.Succeeded(image, "id", &secret))
	if !r.MayUse(image, have, has(secret)) || r.MayUse(image, have, has()) {
		t.Error("the record was not written anew")
	}
}

// While an image is being pulled with credentials, and after a crash meanwhile, it is kept from others by any of its
// names; several pulls of it are over when the last is. spec: SAFE-4
func TestPullsGoOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	r := pullrecord.New(dir, pullrecord.Policy{})
	do(t, r.Begin("app"))
	do(t, r.Begin("docker.io/library/app:latest"))
	byTag := &runtimeapi.Image{Id: "id", RepoTags: []string{"docker.io/library/app:latest"}}
	mine := func(r *pullrecord.Records) bool { return r.MayUse("r.example.com/copy:2", byTag, has()) }
	do(t, r.Failed("app"))
	if mine(r) || mine(pullrecord.New(dir, pullrecord.Policy{})) {
		t.Error("an image that is being pulled is given away")
	}
	do(t, r.Failed("app"))
	if !mine(r) || !mine(pullrecord.New(dir, pullrecord.Policy{})) {
		t.Error("an image is kept from all although its pulls have failed")
	}
	do(t, r.Begin("app"))
	r.Unclear("app")
	if mine(r) || mine(pullrecord.New(dir, pullrecord.Policy{})) {
		t.Error("an image whose pull may have succeeded is given away")
	}
}

// Records go with their images, unless they are newer than what was seen of the images.
func TestPrune(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	r := pullrecord.New(dir, pullrecord.Policy{Verification: pullrecord.AlwaysVerify})
	do(t, r.Prune(nil, time.Now()))
	began := time.Now()
	for _, id := range []string{"stays", "goes"} {
		do(t, r.Succeeded(image, id, nil))
	}
	known := func(id string) bool { return r.MayUse(image, &runtimeapi.Image{Id: id}, has()) }
	do(t, r.Prune(nil, began))
	if !known("stays") || !known("goes") {
		t.Error("a record was removed that is newer than what was seen")
	}
	do(t, r.Prune([]string{"stays"}, time.Now().Add(time.Second)))
	if !known("stays") || known("goes") {
		t.Errorf("stays: %v, goes: %v", known("stays"), known("goes"))
	}
}

// A name by which an image was loaded stays usable when the same image is pulled by another one, which is usable with
// its credentials only, as any that was pulled is.
func TestLoadedImageIsPulledByAnotherName(t *testing.T) {
	const loaded = "docker.io/library/app:dev"
	for verification, want := range map[string]bool{
		pullrecord.NeverVerifyPreloadedImages: true, pullrecord.AlwaysVerify: false, pullrecord.NeverVerify: true,
	} {
		r := pullrecord.New(filepath.Join(t.TempDir(), "images"), policy(verification))
		secret := credential("s", "p")
		do(t, r.Begin(image))
		do(t, r.Succeeded(image, "id", &secret))
		have := &runtimeapi.Image{Id: "id", RepoTags: []string{loaded, image},
			RepoDigests: []string{"r.example.com/team/app@sha256:1"}}
		for _, name := range []string{loaded, "app:dev"} {
			if got := r.MayUse(name, have, has()); got != want {
				t.Errorf("%s: %s may be used: %v, want %v", verification, name, got, want)
			}
		}
		if verification == pullrecord.NeverVerify {
			continue
		}
		if r.MayUse(image, have, has()) || !r.MayUse(image, have, has(secret)) {
			t.Errorf("%s: the name by which it was pulled is for those with its credentials", verification)
		}
		for what, have := range map[string]*runtimeapi.Image{
			"a name that it does not have": {Id: "id", RepoTags: []string{image}, RepoDigests: have.RepoDigests},
			"a runtime without digests":    {Id: "id", RepoTags: have.RepoTags},
			"a name of the repository that it was pulled from": {Id: "id", RepoTags: have.RepoTags,
				RepoDigests: append(have.RepoDigests, "docker.io/library/app@sha256:1")},
		} {
			if r.MayUse(loaded, have, has()) {
				t.Errorf("%s: %s may be used without credentials", verification, what)
			}
		}
	}
}
