package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/volumes/atomicdir"
	"monoplane.dev/nodeagent/volumes/mount"
	"monoplane.dev/nodeagent/volumes/payload"
)

// written is a volume whose files the agent writes, and brings up to date as long as the pod lives.
type written struct {
	m   *Manager
	dir string
	of  func(v *corev1.VolumeSource) bool
	// secret: the files are not to come to lie on a disk.
	secret bool
	files  func(v *volume, s payload.Sources) (payload.Payload, error)
}

func (w written) name() string                   { return w.dir }
func (w written) is(v *corev1.VolumeSource) bool { return w.of(v) }

func (w written) setUp(ctx context.Context, v *volume) (place, error) {
	at := place{Path: v.dir, ReadOnly: true, Written: true}
	files, err := w.files(v, w.m.sources(ctx, v))
	if err != nil {
		return at, err
	}
	if err := w.makeDir(v); err != nil {
		return at, err
	}
	nested, err := payload.Nested(v.pod, v.name)
	if err != nil {
		return at, err
	}
	for _, dir := range nested {
		if err := os.MkdirAll(filepath.Join(v.dir, dir), 0o755); err != nil {
			return at, err
		}
	}
	return at, write(ctx, v, files)
}

func (w written) refresh(ctx context.Context, v *volume) error {
	files, err := w.files(v, w.m.sources(ctx, v))
	if err != nil {
		return err
	}
	return write(ctx, v, files)
}

func write(ctx context.Context, v *volume, files payload.Payload) error {
	_, err := atomicdir.Write(v.dir, files, func() error { return v.give(ctx, v.dir, true) })
	return err
}

// makeDir makes the volume's directory, in memory if that is wanted and the agent may mount.
func (w written) makeDir(v *volume) error {
	above := filepath.Dir(v.dir)
	if err := os.MkdirAll(v.dir, 0o750); err != nil {
		return err
	}
	if w.secret {
		mounted, err := mount.Is(v.dir)
		if err == nil && !mounted {
			err = mount.Tmpfs(v.dir, 0)
		}
		if errors.Is(err, mount.ErrNotPermitted) {
			err = os.Chmod(above, 0o700)
		}
		if err != nil {
			return err
		}
	}
	return os.Chmod(v.dir, 0o777) // whoever a container's processes are; what is above bars all others
}

func (m *Manager) configMaps() plugin {
	return written{
		m: m, dir: "kubernetes.io~configmap",
		of: func(v *corev1.VolumeSource) bool { return v.GetConfigMap() != nil },
		files: func(v *volume, s payload.Sources) (payload.Payload, error) {
			from := v.source.GetConfigMap()
			return s.FromConfigMap(from.GetLocalObjectReference().GetName(), from.GetItems(), from.DefaultMode,
				from.GetOptional())
		},
	}
}

func (m *Manager) secrets() plugin {
	return written{
		m: m, dir: "kubernetes.io~secret", secret: true,
		of: func(v *corev1.VolumeSource) bool { return v.GetSecret() != nil },
		files: func(v *volume, s payload.Sources) (payload.Payload, error) {
			from := v.source.GetSecret()
			return s.FromSecret(from.GetSecretName(), from.GetItems(), from.DefaultMode, from.GetOptional())
		},
	}
}

func (m *Manager) downward() plugin {
	return written{
		m: m, dir: "kubernetes.io~downward-api",
		of: func(v *corev1.VolumeSource) bool { return v.GetDownwardAPI() != nil },
		files: func(v *volume, s payload.Sources) (payload.Payload, error) {
			from := v.source.GetDownwardAPI()
			return payload.Downward(v.pod, from.GetItems(), from.DefaultMode, s.Node)
		},
	}
}

func (m *Manager) projected() plugin {
	return written{
		m: m, dir: "kubernetes.io~projected", secret: true,
		of: func(v *corev1.VolumeSource) bool { return v.GetProjected() != nil },
		files: func(v *volume, s payload.Sources) (payload.Payload, error) {
			return payload.Projected(v.pod, v.source.GetProjected(), s)
		},
	}
}

// tokenSeconds is how long a token lives when the pod does not say.
const tokenSeconds = 3600

// sources returns what the files of a volume are read from.
func (m *Manager) sources(ctx context.Context, v *volume) payload.Sources {
	return payload.Sources{
		ConfigMap: func(name string) (*corev1.ConfigMap, error) {
			return m.cfg.Objects.ConfigMap(ctx, v.namespace(), name)
		},
		Secret: func(name string) (*corev1.Secret, error) { return m.cfg.Objects.Secret(ctx, v.namespace(), name) },
		Token: func(p *corev1.ServiceAccountTokenProjection) (string, error) {
			if m.cfg.Tokens == nil {
				return "", errors.New("the source serviceAccountToken is not supported: this server issues no tokens")
			}
			seconds := int64(tokenSeconds)
			if p.ExpirationSeconds != nil {
				seconds = p.GetExpirationSeconds()
			}
			uid := v.pod.GetMetadata().GetUid()
			token, expires, err := m.cfg.Tokens.Token(ctx, v.pod, p.GetAudience(), seconds)
			if err != nil {
				m.renewals.note(uid, time.Now(), m.cfg.Due)
				return "", err
			}
			m.renewals.note(uid, expires, m.cfg.Due)
			return token, nil
		},
		Node: payload.Node{Allocatable: m.cfg.Allocatable()},
	}
}
