package static

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// fetchTimeout bounds one look at the URL.
const fetchTimeout = 10 * time.Second

// manifest is a file, or what the URL answers, as it was last read.
type manifest struct {
	// stamp changes when the manifest does.
	stamp string
	// pods are those of the last content that was valid; wrong says why the newest is not.
	pods  []*corev1.Pod
	wrong error
	odd   []string
}

// origin is a place with manifests.
type origin struct {
	kind      string
	manifests map[string]*manifest // by path
	// read: it could be read at least once. wrong says why it cannot be read now.
	read  bool
	wrong error
}

// look takes new content of a manifest in.
func (c *Config) look(o *origin, path, stamp string, data []byte, err error) {
	m := o.manifests[path]
	if m == nil {
		m = &manifest{}
		o.manifests[path] = m
	}
	m.stamp, m.wrong, m.odd = stamp, err, nil
	if err != nil {
		return
	}
	pods, odd, err := parse(data)
	if err != nil {
		m.wrong = err
		return
	}
	m.odd = odd
	for _, p := range pods {
		name := p.GetMetadata().GetName()
		if err := c.finish(p, Origin{o.kind, path}, c.now()); err != nil {
			m.wrong = errors.Join(m.wrong, fmt.Errorf("pod %q: %w", name, err))
		}
	}
	if m.wrong == nil {
		m.pods = pods
	}
}

// readDir reads what has changed in the directory, or the one file that c.Dir names.
func (c *Config) readDir(o *origin) {
	paths, err := c.files()
	if o.wrong = err; err != nil {
		return
	}
	o.read = true
	seen := make(map[string]bool, len(paths))
	for _, path := range paths {
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		seen[path] = true
		if err != nil {
			c.look(o, path, "", nil, err)
			continue
		}
		stamp := fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano())
		if m := o.manifests[path]; m != nil && m.stamp == stamp {
			continue
		}
		data, err := readFile(path)
		c.look(o, path, stamp, data, err)
	}
	maps.DeleteFunc(o.manifests, func(path string, _ *manifest) bool { return !seen[path] })
}

// files returns the paths of the manifests. A directory that does not exist has none.
func (c *Config) files() ([]string, error) {
	info, err := os.Stat(c.Dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.IsDir():
		return []string{c.Dir}, nil
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			out = append(out, filepath.Join(c.Dir, e.Name()))
		}
	}
	return out, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the administrator names the directory
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return readAll(f)
}

func readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err == nil && len(data) > maxManifest {
		err = fmt.Errorf("the manifest is larger than %d bytes", maxManifest)
	}
	return data, err
}

// readURL asks for the manifest of the URL.
func (c *Config) readURL(ctx context.Context, o *origin) {
	data, err := c.fetch(ctx)
	if o.wrong = err; err != nil {
		return
	}
	o.read = true
	if m := o.manifests[c.URL]; m == nil || m.stamp != string(data) {
		c.look(o, c.URL, string(data), data, nil)
	}
}

func (c *Config) fetch(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, c.Header)
	resp, err := c.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", c.URL, resp.Status)
	}
	data, err := readAll(resp.Body)
	if err == nil && len(data) == 0 {
		err = fmt.Errorf("%s: the answer is empty", c.URL)
	}
	return data, err
}

// all returns the pods of all origins, one for each name, and what is wrong.
func (c *Config) all(origins []*origin) State {
	var s State
	taken := make(map[string]string)
	for _, o := range origins {
		if o.read {
			s.Read = append(s.Read, o.kind)
		}
		if o.wrong != nil {
			s.Wrong = append(s.Wrong, o.wrong.Error())
		}
		for _, path := range slices.Sorted(maps.Keys(o.manifests)) {
			m := o.manifests[path]
			if m.wrong != nil {
				s.Wrong = append(s.Wrong, fmt.Sprintf("manifest %s: %v", path, m.wrong))
			}
			for _, odd := range m.odd {
				s.Odd = append(s.Odd, fmt.Sprintf("manifest %s: %s", path, odd))
			}
			for _, p := range m.pods {
				key := p.GetMetadata().GetNamespace() + "/" + p.GetMetadata().GetName()
				if first, ok := taken[key]; ok {
					s.Wrong = append(s.Wrong, fmt.Sprintf("manifest %s: pod %s is in manifest %s too", path, key, first))
					continue
				}
				taken[key] = path
				s.Pods = append(s.Pods, p)
			}
		}
	}
	return s
}
