package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/diskuse"
	"monoplane.dev/nodeagent/volumes/mount"
	"monoplane.dev/nodeagent/volumes/ownership"
	"monoplane.dev/nodeagent/volumes/payload"
	"monoplane.dev/rules/resources"
)

// Source reads the objects that pods of the node refer to. Errors are those of package apierrors.
type Source interface {
	// ConfigMap returns a config map.
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	// Secret returns a secret.
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Tokens issues tokens for the service accounts of pods.
type Tokens interface {
	// Token returns a token that is bound to the pod, and when it ends. It may be one that was issued before.
	Token(ctx context.Context, pod *corev1.Pod, audience string, expirationSeconds int64) (
		token string, expires time.Time, err error)
}

// Config says what a Manager works with. Dir and Objects are required.
type Config struct {
	// Dir has one directory for each pod, named by its uid.
	Dir string
	// Objects are read for volumes with config maps and secrets.
	Objects Source
	// Tokens are for volumes with tokens; nil when the server issues none.
	Tokens Tokens
	// RegistryDir is the directory in which drivers of the Container Storage Interface announce themselves, PluginsDir
	// that for what pods share of their volumes.
	RegistryDir, PluginsDir string
	// LocalDir is the node's own directory of volumes that are made for claims; empty for none.
	LocalDir string
	// Remove removes a directory of which files belong to users of containers; nil where the process may.
	Remove func(ctx context.Context, dir string) error
	// Claims are read for volumes that outlive their pods.
	Claims Claims
	// Node is this node as last seen, nil when it was not.
	Node func() *corev1.Node
	// Allocatable is what pods of the node can have.
	Allocatable func() resources.List
	// Give gives a volume to a group, as ownership.Give does, which it stands for if nil.
	Give func(ctx context.Context, dir string, group int64, forReading bool, policy string) error
	// Measure measures what volumes hold, as diskuse.Of does, which it stands for if nil.
	Measure func(ctx context.Context, dir string) (diskuse.Size, error)
	// Kept reports whether a pod is never evicted, whatever it stores; there are no such pods if nil.
	Kept func(p *corev1.Pod) bool
	// NotEnforced is told what a pod asks of its volumes and does not get, and why, in words for the user.
	NotEnforced func(p *corev1.Pod, message string)
	// Due is called, on a goroutine of its own, when Refresh is to be called for a pod because a token nears its end.
	Due func(uid string)
	// Logger defaults to none.
	Logger *slog.Logger
}

// Manager sees to the volumes of a node's pods. Use New.
type Manager struct {
	cfg     Config
	plugins []plugin
	// shared is held while it is decided by the records of all pods who may use a volume, or who is the last.
	shared sync.Mutex

	mu sync.Mutex // guards what follows
	// turns has, by uid, the pods whose volumes are being worked on.
	turns    map[string]*turn
	renewals renewals
}

// operationTimeout is how long an operation on a pod's volumes may take, and patience how long one that was told to
// end has for saying what it was at.
const (
	operationTimeout = 2 * time.Minute
	patience         = 5 * time.Second
)

// New returns a manager for pods below cfg.Dir.
func New(cfg Config) *Manager {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Allocatable == nil {
		cfg.Allocatable = func() resources.List { return nil }
	}
	if cfg.Give == nil {
		cfg.Give = func(_ context.Context, dir string, group int64, forReading bool, policy string) error {
			return ownership.Give(dir, group, forReading, policy)
		}
	}
	if cfg.Measure == nil {
		cfg.Measure = diskuse.Of
	}
	if cfg.Kept == nil {
		cfg.Kept = func(*corev1.Pod) bool { return false }
	}
	if cfg.NotEnforced == nil {
		cfg.NotEnforced = func(*corev1.Pod, string) {}
	}
	if cfg.Node == nil {
		cfg.Node = func() *corev1.Node { return nil }
	}
	m := &Manager{cfg: cfg, turns: make(map[string]*turn)}
	m.plugins = []plugin{
		emptyDir{m}, hostPath{}, m.configMaps(), m.secrets(), m.downward(), m.projected(),
		claimed{m}, nfs{}, image{}, byDriver{m},
	}
	return m
}

// plugin brings volumes of one kind to pods. It keeps no state.
type plugin interface {
	// name is the name of the directory for volumes of this kind.
	name() string
	// is reports whether a volume is of this kind.
	is(v *corev1.VolumeSource) bool
	// setUp makes a volume, or finds it made, and says where it is.
	setUp(ctx context.Context, v *volume) (place, error)
}

// refresher is a plugin whose volumes change when what they were made from has changed.
type refresher interface {
	refresh(ctx context.Context, v *volume) error
}

// releaser is a plugin for whose volumes more is to be done than to unmount and remove.
type releaser interface {
	release(ctx context.Context, home string, p place) error
}

// volume is a volume of a pod that a plugin works on.
type volume struct {
	m      *Manager
	pod    *corev1.Pod
	name   string
	source *corev1.VolumeSource
	// home is the pod's directory; dir is the volume's own, which the plugin makes when it needs one.
	home, dir string
}

func (v *volume) namespace() string { return v.pod.GetMetadata().GetNamespace() }

// give gives the volume to the pod's fsGroup.
func (v *volume) give(ctx context.Context, dir string, forReading bool) error {
	group := payload.FSGroup(v.pod)
	if group == nil {
		return nil
	}
	policy := v.pod.GetSpec().GetSecurityContext().GetFsGroupChangePolicy()
	if forReading { // Kubernetes looks at the policy only where containers can write
		policy = ""
	}
	err := v.m.cfg.Give(ctx, dir, *group, forReading, policy)
	if errors.Is(err, ownership.ErrNoGroup) {
		v.m.cfg.NotEnforced(v.pod,
			fmt.Sprintf("fsGroup %d is not enforced: the pod's volumes belong to root: %v", *group, err))
		return nil
	}
	return err
}

func (m *Manager) home(uid string) string { return filepath.Join(m.cfg.Dir, uid) }

// volumesOf returns those of the pod's volumes that its containers mention, and the plugin for each, nil for none.
func (m *Manager) volumesOf(p *corev1.Pod) (volumes []*volume, by []plugin) {
	mentioned := make(map[string]bool)
	for _, c := range containersOf(p) {
		for _, at := range c.GetVolumeMounts() {
			mentioned[at.GetName()] = true
		}
		for _, at := range c.GetVolumeDevices() {
			mentioned[at.GetName()] = true
		}
	}
	home := m.home(p.GetMetadata().GetUid())
	for _, of := range p.GetSpec().GetVolumes() {
		if !mentioned[of.GetName()] {
			continue
		}
		v := &volume{m: m, pod: p, name: of.GetName(), source: of.GetVolumeSource(), home: home}
		var by1 plugin
		at := slices.IndexFunc(m.plugins, func(p plugin) bool { return p.is(v.source) })
		if at >= 0 {
			by1 = m.plugins[at]
			v.dir = filepath.Join(home, volumesDir, by1.name(), v.name)
		}
		volumes, by = append(volumes, v), append(by, by1)
	}
	return volumes, by
}

const (
	volumesDir  = "volumes"
	subpathsDir = "volume-subpaths"
)

// mounter is what containers of all sorts have in common here.
type mounter interface {
	GetName() string
	GetVolumeMounts() []*corev1.VolumeMount
	GetVolumeDevices() []*corev1.VolumeDevice
}

func containersOf(p *corev1.Pod) []mounter {
	var all []mounter
	for _, c := range p.GetSpec().GetInitContainers() {
		all = append(all, c)
	}
	for _, c := range p.GetSpec().GetContainers() {
		all = append(all, c)
	}
	for _, c := range p.GetSpec().GetEphemeralContainers() {
		all = append(all, c.GetEphemeralContainerCommon())
	}
	return all
}

// SetUp brings the pod's volumes to the node. The error names the volumes that are not there, in words for the user.
// It can be called again.
func (m *Manager) SetUp(ctx context.Context, p *corev1.Pod) error {
	if len(p.GetSpec().GetVolumes()) == 0 {
		return nil
	}
	uid := p.GetMetadata().GetUid()
	return m.alone(ctx, uid, "setting up its volumes", func(ctx context.Context) error { return m.setUp(ctx, p) })
}

func (m *Manager) setUp(ctx context.Context, p *corev1.Pod) error {
	volumes, by := m.volumesOf(p)
	if len(volumes) == 0 {
		return nil
	}
	if err := os.MkdirAll(volumes[0].home, 0o750); err != nil {
		return err
	}
	rec, err := m.readRecord(volumes[0].home)
	if err != nil {
		return err
	}
	rec.began()
	var wrong []string
	for i, v := range volumes {
		if by[i] == nil {
			wrong = append(wrong, fmt.Sprintf("MountVolume.SetUp failed for volume %q : no volume plugin matched: %s",
				v.name, unsupported(v.source)))
			continue
		}
		at, err := by[i].setUp(ctx, v)
		if at.Plugin == "" {
			at.Plugin = by[i].name()
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", v.name, err))
		}
		if err == nil || at.Held {
			rec.Volumes[v.name] = at
		}
	}
	if err := rec.write(volumes[0].home); err != nil {
		return err
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// Refresh brings up to date what was written from objects, fields of the pod and tokens. It does nothing for a pod
// whose volumes were not set up. What cannot be read stays as it is, and is in the error.
func (m *Manager) Refresh(ctx context.Context, p *corev1.Pod) error {
	if len(p.GetSpec().GetVolumes()) == 0 {
		return nil
	}
	return m.alone(ctx, p.GetMetadata().GetUid(), "refreshing its volumes", func(ctx context.Context) error {
		volumes, by := m.volumesOf(p)
		if len(volumes) == 0 {
			return nil
		}
		rec, err := m.readRecord(volumes[0].home)
		if err != nil {
			return err
		}
		var wrong []string
		for i, v := range volumes {
			r, ok := by[i].(refresher)
			if _, made := rec.Volumes[v.name]; !ok || !made {
				continue
			}
			if err := r.refresh(ctx, v); err != nil {
				wrong = append(wrong, fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", v.name, err))
			}
		}
		if len(wrong) > 0 {
			return errors.New(strings.Join(wrong, "; "))
		}
		return nil
	})
}

// TearDown takes the pod's volumes away, and then removes the pod's directory with all in it. Nothing of the pod may
// run. It can be called again, and for a pod that never had any. spec: DEL-7
func (m *Manager) TearDown(ctx context.Context, uid string) error {
	home := m.home(uid)
	m.renewals.forget(uid)
	made := false
	for _, name := range []string{volumesDir, subpathsDir, recordFile} {
		_, err := os.Lstat(filepath.Join(home, name))
		made = made || err == nil
	}
	if !made && !m.busy(uid) {
		return removed(os.RemoveAll(home))
	}
	return m.alone(ctx, uid, "taking its volumes away", func(ctx context.Context) error {
		m.renewals.forget(uid)
		rec, err := m.readRecord(home)
		if err != nil {
			return err
		}
		if err := m.release(ctx, home, rec); err != nil {
			return err
		}
		// The record goes last: the agent that comes back needs it as long as anything is left.
		if err := mount.Remove(ctx, filepath.Join(home, volumesDir)); err != nil {
			return err
		}
		return mount.Remove(ctx, home)
	})
}

// Rest takes away what is mounted of the pod's volumes and leaves what lies on disk: nothing of the pod runs, the node
// is to be empty, and the pod's directory can be moved or removed as any other. SetUp brings the volumes back; what
// was in memory is gone, as after a restart of the machine.
func (m *Manager) Rest(ctx context.Context, uid string) error {
	home := m.home(uid)
	m.renewals.forget(uid)
	switch _, err := os.Lstat(filepath.Join(home, recordFile)); {
	case errors.Is(err, fs.ErrNotExist), tooLong(err):
		return nil // there are none
	case err != nil:
		return err
	}
	return m.alone(ctx, uid, "unmounting its volumes", func(ctx context.Context) error {
		rec, err := m.readRecord(home)
		if err != nil {
			return err
		}
		if err := m.release(ctx, home, rec); err != nil {
			return err
		}
		return mount.UnmountAll(home)
	})
}

// release does what is to be done before a pod's volumes are unmounted.
func (m *Manager) release(ctx context.Context, home string, rec *record) error {
	// What shows parts of volumes goes before them.
	if err := mount.Remove(ctx, filepath.Join(home, subpathsDir)); err != nil {
		return err
	}
	var wrong error // One that stays keeps no other.
	for _, name := range slices.Sorted(maps.Keys(rec.Volumes)) {
		at := rec.Volumes[name]
		for _, by := range m.plugins {
			if r, ok := by.(releaser); ok && by.name() == at.Plugin {
				if err := r.release(ctx, home, at); err != nil {
					if err = fmt.Errorf("volume %q: %w", name, err); wrong != nil {
						err = fmt.Errorf("%w; %w", wrong, err)
					}
					wrong = err
				}
			}
		}
	}
	return wrong
}

// removed drops the error about a name that is too long for a directory: there never was one.
func removed(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) && tooLong(path.Err) {
		return nil
	}
	return err
}

// Close ends the timer for renewals.
func (m *Manager) Close() { m.renewals.close() }
