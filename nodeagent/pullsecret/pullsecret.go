// Package pullsecret finds, among the Secrets that a pod names for it, the credentials with which an image is pulled.
//
// It understands Secrets of the types kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg, and chooses as
// Kubernetes' agent does, which test/oracle compares: an entry is for all repositories of its registry that begin with
// its path, * in it stands for a part of a host name, and of those that fit the one with the longer path is tried
// first. It is pure. Its errors
// repeat nothing of what a Secret holds.
package pullsecret

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
)

// Keyring holds credentials by the repositories that they are for. The zero value is empty.
type Keyring struct {
	// credentials by registry and path, such as "registry.example.com/team".
	credentials map[string][]Credential
}

// Credential is what a Secret has for a registry, and which Secret that is.
type Credential struct {
	Auth                 *runtimeapi.AuthConfig
	UID, Namespace, Name string
}

// entry is what a Secret says of one registry.
type entry struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Auth     string `json:"auth"`
}

// Add takes what a Secret holds. Secrets of other types hold nothing for it. The error says what is wrong with the
// Secret, of which nothing is taken then.
func (k *Keyring) Add(s *corev1.Secret) error {
	entries, err := read(s)
	if err != nil {
		return fmt.Errorf("secret %q: %w", s.GetMetadata().GetName(), err)
	}
	for _, where := range slices.Sorted(maps.Keys(entries)) {
		at, ok := location(where)
		if !ok {
			continue
		}
		if k.credentials == nil {
			k.credentials = make(map[string][]Credential)
		}
		e, m := entries[where], s.GetMetadata()
		k.credentials[at] = append(k.credentials[at], Credential{
			Auth: &runtimeapi.AuthConfig{Username: e.Username, Password: e.Password},
			UID:  m.GetUid(), Namespace: m.GetNamespace(), Name: m.GetName(),
		})
	}
	return nil
}

var (
	errJSON = errors.New("its data is no JSON object with credentials for registries")
	errAuth = errors.New("the auth of a registry is not base64 of username:password")
)

func read(s *corev1.Secret) (map[string]entry, error) {
	var entries map[string]entry
	switch s.GetType() {
	case "kubernetes.io/dockerconfigjson":
		var file struct {
			Auths map[string]entry `json:"auths"`
		}
		if text := s.GetData()[".dockerconfigjson"]; len(text) > 0 && json.Unmarshal(text, &file) != nil {
			return nil, errJSON
		}
		entries = file.Auths
	case "kubernetes.io/dockercfg":
		if text := s.GetData()[".dockercfg"]; len(text) > 0 && json.Unmarshal(text, &entries) != nil {
			return nil, errJSON
		}
	}
	for where, e := range entries {
		if e.Auth == "" {
			continue
		}
		encoding := base64.RawStdEncoding
		if strings.HasSuffix(strings.TrimSpace(e.Auth), "=") {
			encoding = base64.StdEncoding
		}
		text, err := encoding.DecodeString(e.Auth)
		if err != nil {
			return nil, errAuth
		}
		var ok bool
		if e.Username, e.Password, ok = strings.Cut(string(text), ":"); !ok {
			return nil, errAuth
		}
		entries[where] = e
	}
	return entries, nil
}

// location returns the host and path of an entry, which may be a URL, of an old version of the protocol too.
func location(where string) (string, bool) {
	if !strings.HasPrefix(where, "https://") && !strings.HasPrefix(where, "http://") {
		where = "https://" + where
	}
	u, err := url.Parse(where)
	if err != nil {
		return "", false
	}
	below := u.Path
	if strings.HasPrefix(below, "/v1/") || strings.HasPrefix(below, "/v2/") {
		below = below[len("/v1"):]
	}
	if below == "/" {
		below = ""
	}
	return u.Host + below, true
}

// The registry of images that name none, and what credentials for it are mostly filed under.
const (
	docker      = "docker.io"
	dockerIndex = "index.docker.io"
)

// Lookup returns the credentials for an image, those to be tried first first.
func (k *Keyring) Lookup(image string) []Credential {
	repository := Repository(image)
	var out []Credential
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(k.credentials))) {
		if matches(at, repository) {
			out = append(out, k.credentials[at]...)
		}
	}
	// Kubernetes takes a host without dots or a port, such as localhost, for a part of the default registry here.
	host, _, _ := strings.Cut(repository, "/")
	if len(out) == 0 && (host == docker || !strings.ContainsAny(host, ".:")) {
		return k.credentials[dockerIndex]
	}
	return out
}

// Repository returns the repository of an image, with the registry: "docker.io/library/busybox" for "busybox:1".
func Repository(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	host, rest, ok := strings.Cut(name, "/")
	switch {
	case !ok:
		return docker + "/library/" + name
	case !strings.ContainsAny(host, ".:") && host != "localhost" && strings.ToLower(host) == host:
		return docker + "/" + name
	case host == docker || host == dockerIndex:
		if !strings.Contains(rest, "/") {
			rest = "library/" + rest
		}
		return docker + "/" + rest
	default:
		return name
	}
}

// matches says whether an entry is for a repository.
func matches(at, repository string) bool {
	pattern, err := url.Parse("https://" + at)
	if err != nil {
		return false
	}
	target, err := url.Parse("https://" + repository)
	if err != nil || !strings.HasPrefix(target.Path, pattern.Path) {
		return false
	}
	parts, port := split(pattern.Host)
	names, targetPort := split(target.Host)
	if port != targetPort || len(parts) != len(names) {
		return false
	}
	for i, part := range parts {
		if ok, err := path.Match(part, names[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

func split(address string) (parts []string, port string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = address, ""
	}
	return strings.Split(host, "."), port
}
