package pullsecret_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/pullsecret"
)

func secret(kind, key, text string) *corev1.Secret {
	return &corev1.Secret{Metadata: &metav1.ObjectMeta{Name: "s"}, Type: kind, Data: map[string][]byte{key: []byte(text)}}
}

func configJSON(auths string) *corev1.Secret {
	return secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", `{"auths":{`+auths+`}}`)
}

func users(k *pullsecret.Keyring, image string) []string {
	var out []string
	for _, a := range k.Lookup(image) {
		out = append(out, a.Auth.GetUsername()+":"+a.Auth.GetPassword())
	}
	return out
}

// Credentials are those of the entries that fit, the longest first, and of the Secrets in the pod's order.
//
// spec: CTR-6
func TestLookup(t *testing.T) {
	k := &pullsecret.Keyring{}
	auth := base64.StdEncoding.EncodeToString([]byte("hub:a:b"))
	for _, s := range []*corev1.Secret{
		configJSON(`"https://index.docker.io/v1/":{"auth":"` + auth + `"},"r.example.com":{"username":"all","password":"1"},
			"http://r.example.com/v2/team":{"username":"team"},"*.example.org:5000":{"username":"star"}`),
		secret("kubernetes.io/dockercfg", ".dockercfg", `{"r.example.com":{"username":"old"},"%zz":{}}`),
		secret("kubernetes.io/dockercfg", ".dockercfg", ""),
		secret("Opaque", ".dockerconfigjson", `{"auths":{"r.example.com":{"username":"no"}}}`),
	} {
		if err := k.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	for image, want := range map[string][]string{
		"busybox":                            {"hub:a:b"},
		"docker.io/library/busybox:1":        {"hub:a:b"},
		"index.docker.io/a/b@sha256:00":      {"hub:a:b"},
		"a/b":                                {"hub:a:b"},
		"r.example.com/x:1":                  {"all:1", "old:"},
		"r.example.com/team/x":               {"team:", "all:1", "old:"},
		"r.example.com/teams":                {"team:", "all:1", "old:"},
		"r.example.com:443/x":                nil,
		"a.example.org:5000/x":               {"star:"},
		"a.example.org/x":                    nil,
		"a.b.example.org:5000/x":             nil,
		"localhost/x":                        {"hub:a:b"},
		"localhost:5000/x@sha256:0123456789": nil,
	} {
		if got := users(k, image); !slices.Equal(got, want) {
			t.Errorf("%s is pulled by %q, want %q", image, got, want)
		}
	}
	if got := users(&pullsecret.Keyring{}, "busybox"); got != nil {
		t.Errorf("an empty keyring has %q", got)
	}
}

// What is wrong with a Secret is said without repeating any of it.
func TestBadSecrets(t *testing.T) {
	const canary = "hunter2hunter2"
	k := &pullsecret.Keyring{}
	for _, s := range []*corev1.Secret{
		configJSON(`"r.example.com":{"auth":"` + canary + `"}`),
		configJSON(`"r.example.com":{"auth":"` + base64.StdEncoding.EncodeToString([]byte(canary)) + `"}`),
		configJSON(`"r.example.com":"` + canary + `"`),
		configJSON(canary),
		secret("kubernetes.io/dockercfg", ".dockercfg", canary),
		secret("kubernetes.io/dockercfg", ".dockercfg", `{"`+canary+`":1}`),
	} {
		err := k.Add(s)
		if err == nil || !strings.Contains(err.Error(), `secret "s"`) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", s.Data, err)
		}
	}
	if got := users(k, "r.example.com/x"); got != nil {
		t.Errorf("a bad Secret gave %q", got)
	}
}
