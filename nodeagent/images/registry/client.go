package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Client reads from registries.
type Client struct {
	cfg  Config
	wait func(context.Context, time.Duration) error
}

// New returns a client. It fails if the configuration names a mirror that cannot be one.
func New(cfg Config) (*Client, error) {
	const stall, attempts = 30 * time.Second, 5
	if cfg.Stall <= 0 {
		cfg.Stall = stall
	}
	if cfg.Attempts <= 0 {
		cfg.Attempts = attempts
	}
	for host, h := range cfg.Hosts {
		for _, m := range h.Mirrors {
			if _, _, err := parseMirror(m); err != nil {
				return nil, fmt.Errorf("registry %s: mirror %q is not like https://mirror.example.com/path", host, m)
			}
		}
	}
	return &Client{cfg, wait}, nil
}

// parseMirror returns the URL of a mirror, and the path before the names of its repositories, which is empty or ends
// with a slash.
func parseMirror(m string) (u *url.URL, prefix string, err error) {
	if u, err = url.Parse(m); err != nil {
		return nil, "", err
	}
	if u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		return nil, "", errors.New("not a scheme, a host and a path")
	}
	if prefix = strings.Trim(u.Path, "/"); prefix == "" {
		return u, "", nil
	}
	if !path.MatchString(prefix) {
		return nil, "", errors.New("no path of a repository")
	}
	return u, prefix + "/", nil
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Repository is one repository, in its registry and the registry's mirrors.
type Repository struct {
	// Again, if not nil, is told what went wrong with a request that is made again, from several goroutines.
	Again func(error)

	client  *Client
	ref     Reference
	sources []*source
}

// source is a place where a repository may be had.
type source struct {
	repo  name.Repository
	auth  authn.Authenticator
	guard *guard

	mu   sync.Mutex
	http *http.Client // nil before the first answer
}

// Repository returns the repository of a reference, to be asked as auth; as whom the configuration says if auth is
// nil. Nothing is sent yet.
func (c *Client) Repository(ctx context.Context, ref Reference, auth *Auth) (*Repository, error) {
	r := &Repository{client: c, ref: ref}
	host := c.cfg.Hosts[ref.host()]
	_, inside, _ := strings.Cut(ref.Repository, "/")
	for _, m := range host.Mirrors {
		u, prefix, err := parseMirror(m)
		if err != nil {
			return nil, err
		}
		who, err := c.authenticator(ctx, u.Host, prefix+inside, nil)
		if err != nil {
			return nil, err
		}
		caFile := cmp.Or(c.cfg.Hosts[u.Host].CAFile, host.CAFile)
		if err := r.add(u.Host, prefix+inside, u.Scheme == "http", caFile, who); err != nil {
			return nil, err
		}
	}
	who, err := c.authenticator(ctx, ref.host(), inside, auth)
	if err != nil {
		return nil, err
	}
	return r, r.add(ref.host(), inside, host.PlainHTTP, host.CAFile, who)
}

func (r *Repository) add(host, path string, plain bool, caFile string, auth authn.Authenticator) error {
	var opts []name.Option
	if plain {
		opts = append(opts, name.Insecure)
	}
	reg, err := name.NewRegistry(host, opts...)
	if err != nil {
		return err
	}
	bare := (&url.URL{Host: reg.RegistryStr()}).Hostname()
	g, err := newGuard(bare, plain || isLoopback(bare), caFile, r.client.cfg.Stall)
	if err != nil {
		return err
	}
	r.sources = append(r.sources, &source{repo: reg.Repo(path), auth: auth, guard: g})
	return nil
}

// Close gives connections free.
func (r *Repository) Close() {
	for _, s := range r.sources {
		s.guard.next.CloseIdleConnections()
	}
}

// connect returns a client that has authenticated itself.
func (s *source) connect(ctx context.Context) (*http.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http != nil {
		return s.http, nil
	}
	t, err := transport.NewWithContext(ctx, s.repo.Registry, s.auth, s.guard, []string{s.repo.Scope(transport.PullScope)})
	if err != nil {
		return nil, judge(ctx, err)
	}
	s.http = &http.Client{Transport: t}
	return s.http, nil
}

func (s *source) get(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	client, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	u := url.URL{
		Scheme: s.repo.Scheme(), Host: s.repo.RegistryStr(), Path: "/v2/" + s.repo.RepositoryStr() + path,
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header = header
	resp, err := client.Do(req)
	if err != nil {
		return nil, judge(ctx, err)
	}
	return resp, nil
}

// each calls do with one source after the other until one succeeds, each as often as may help. Done is told after
// each failure whether something came all the same.
func (r *Repository) each(ctx context.Context, do func(*source) (progress bool, err error)) error {
	const most = 100 // however much comes each time
	var errs []error
	for _, s := range r.sources {
		var err error
		for failures, tries := 0, 0; failures < r.client.cfg.Attempts && tries < most; tries++ {
			var progress bool
			if progress, err = do(s); err == nil {
				return nil
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if progress {
				failures = 0
			}
			failures++
			ok, least := again(err)
			if pause := backoff(failures, least); !ok || pause > longestPause {
				break
			} else if failures < r.client.cfg.Attempts {
				if r.Again != nil {
					r.Again(fmt.Errorf("%s: %w", shownHost(s.repo.RegistryStr()), err))
				}
				if err := r.client.wait(ctx, pause); err != nil {
					return err
				}
			}
		}
		errs = append(errs, fmt.Errorf("%s: %w", shownHost(s.repo.RegistryStr()), err))
	}
	// What the registry itself says counts most. Its name is known.
	last := len(errs) - 1
	out := errors.Unwrap(errs[last])
	for _, err := range errs[:last] {
		out = fmt.Errorf("%w (mirror %s)", out, clip(err.Error()))
	}
	return out
}

// longestPause is how long a registry may ask to be left alone before that is an error.
const longestPause = time.Minute

// backoff returns how long to wait after so many failures.
func backoff(failures int, least time.Duration) time.Duration {
	const first, most = 200 * time.Millisecond, 10 * time.Second
	d := min(most, first<<min(failures-1, 10))
	return max(least, d/2+rand.N(d/2+1))
}

// Descriptor says what something is that a registry has.
type Descriptor struct {
	MediaType string
	Digest    string
	Size      int64
}

// mostManifest is how large a manifest or index may be, in bytes.
const mostManifest = 4 << 20

// manifestTypes are the kinds of manifests that are understood.
var manifestTypes = strings.Join([]string{
	string(types.OCIManifestSchema1), string(types.OCIImageIndex),
	string(types.DockerManifestSchema2), string(types.DockerManifestList),
}, ", ")

// Manifest returns the manifest or index that a digest stands for, or the reference if digest is empty. Its digest is
// right.
func (r *Repository) Manifest(ctx context.Context, digest string) (Descriptor, []byte, error) {
	want := digest
	if want == "" {
		want = r.ref.identifier()
	}
	var desc Descriptor
	var body []byte
	err := r.each(ctx, func(s *source) (bool, error) {
		resp, err := s.get(ctx, "/manifests/"+want, http.Header{"Accept": {manifestTypes}})
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		if err := judgeAnswer(resp, http.StatusOK); err != nil {
			return false, err
		}
		if body, err = io.ReadAll(io.LimitReader(resp.Body, mostManifest+1)); err != nil {
			return false, judgeBody(ctx, err)
		}
		if len(body) > mostManifest {
			return false, fmt.Errorf("%w: the manifest has more than %d bytes", ErrWrong, mostManifest)
		}
		sum := sha256.Sum256(body)
		desc = Descriptor{
			MediaType: resp.Header.Get("Content-Type"), Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(body)),
		}
		if strings.HasPrefix(want, "sha256:") && desc.Digest != want {
			return false, fmt.Errorf("%w: the manifest's digest is %s, not %s", ErrWrong, desc.Digest, want)
		}
		return false, nil
	})
	return desc, body, err
}

// judgeBody judges an error of reading an answer. All may be tried again.
func judgeBody(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrUnavailable):
		return err
	default:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}
