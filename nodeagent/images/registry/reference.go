package registry

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// Reference names an image in a registry.
type Reference struct {
	// Repository is the registry and the path, such as docker.io/library/nginx.
	Repository string
	// Tag is the tag, "latest" if there is neither tag nor digest; empty if there is only a digest.
	Tag string
	// Digest is sha256: and hex digits, or empty. It is what counts if there is a tag too.
	Digest string
}

// path is what the distribution protocol allows as the name of a repository.
var path = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)

// tag is what tags look like.
var tag = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// dockerHub is how people and Kubernetes write the registry whose host is index.docker.io.
const dockerHub = "docker.io"

// ParseReference reads a reference as people write it: nginx is docker.io/library/nginx:latest.
func ParseReference(s string) (Reference, error) {
	if strings.Contains(s, "://") {
		return Reference{}, fmt.Errorf("invalid reference %q: it is no URL, but a name such as nginx:1.29", s)
	}
	ref, err := name.ParseReference(s)
	if err != nil {
		return Reference{}, fmt.Errorf("invalid reference %q: %w", s, err)
	}
	repo := ref.Context()
	if !path.MatchString(repo.RepositoryStr()) {
		return Reference{}, fmt.Errorf("invalid reference %q: %q is no path of a repository", s, repo.RepositoryStr())
	}
	out := Reference{Repository: shownHost(repo.RegistryStr()) + "/" + repo.RepositoryStr()}
	if d, ok := ref.(name.Digest); ok {
		out.Digest = d.DigestStr()
		if !strings.HasPrefix(out.Digest, "sha256:") {
			return Reference{}, fmt.Errorf("invalid reference %q: digests other than sha256 are not supported", s)
		}
		named, _, _ := strings.Cut(s, "@")
		if i := strings.LastIndexByte(named, ':'); i > strings.LastIndexByte(named, '/') {
			out.Tag = named[i+1:]
		}
	} else {
		out.Tag = ref.Identifier()
	}
	if out.Tag != "" && !tag.MatchString(out.Tag) {
		return Reference{}, fmt.Errorf("invalid reference %q: %q is no tag", s, out.Tag)
	}
	return out, nil
}

func shownHost(host string) string {
	if host == name.DefaultRegistry {
		return dockerHub
	}
	return host
}

// String returns the reference in full.
func (r Reference) String() string {
	s := r.Repository
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + r.Digest
	}
	return s
}

// Tagged returns the name with the tag, empty if there is none; Pinned the name with a digest.
func (r Reference) Tagged() string {
	if r.Tag == "" {
		return ""
	}
	return r.Repository + ":" + r.Tag
}

// Pinned returns the repository with a digest.
func (r Reference) Pinned(digest string) string { return r.Repository + "@" + digest }

// host returns the registry's name, as in Config.Hosts.
func (r Reference) host() string {
	host, _, _ := strings.Cut(r.Repository, "/")
	return host
}

// identifier is what the registry is asked for.
func (r Reference) identifier() string {
	if r.Digest != "" {
		return r.Digest
	}
	return r.Tag
}
