package volumes

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/volumes/csi"
	"monoplane.dev/nodeagent/volumes/payload"
)

// byDriver is a volume that a driver on the node makes for the pod. Volumes of drivers that a claim is bound to come
// this way too.
type byDriver struct{ m *Manager }

func (byDriver) name() string                   { return "kubernetes.io~csi" }
func (byDriver) is(v *corev1.VolumeSource) bool { return v.GetCsi() != nil }

// driven says which driver is to release a volume, and how.
type driven struct {
	Driver    string `json:"driver"`
	Handle    string `json:"handle"`
	Staging   string `json:"staging,omitempty"`
	Target    string `json:"target"`
	Ephemeral bool   `json:"ephemeral,omitempty"`
}

func (d byDriver) setUp(ctx context.Context, v *volume) (place, error) {
	from := v.source.GetCsi()
	uid := v.pod.GetMetadata().GetUid()
	want := csi.Volume{
		Driver: from.GetDriver(), Handle: fmt.Sprintf("csi-%x", sha256.Sum256([]byte(uid+v.name))), Ephemeral: true,
		ReadOnly: from.GetReadOnly(), FSType: from.GetFsType(), Context: podInfo(v.pod, from.GetVolumeAttributes(), true),
		Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, Target: filepath.Join(v.dir, "mount"),
	}
	var err error
	if ref := from.GetNodePublishSecretRef(); ref != nil {
		if want.PublishSecrets, err = d.m.credentials(ctx, v.namespace(), ref.GetName()); err != nil {
			return place{}, err
		}
	}
	at := place{ReadOnly: from.GetReadOnly()}
	_, err = d.m.drive(ctx, v, want, &at)
	return at, err
}

// persistent brings a volume of a driver that a claim is bound to.
func (d byDriver) persistent(ctx context.Context, b *bound, at *place) error {
	from := b.pv.GetSpec().GetPersistentVolumeSource().GetCsi()
	at.ReadOnly = at.ReadOnly || from.GetReadOnly()
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(from.GetVolumeHandle())))
	want := csi.Volume{
		Driver: from.GetDriver(), Handle: from.GetVolumeHandle(), ReadOnly: at.ReadOnly, FSType: from.GetFsType(),
		Options: b.pv.GetSpec().GetMountOptions(), Mode: accessMode(b.pv.GetSpec().GetAccessModes()),
		Context: podInfo(b.pod, from.GetVolumeAttributes(), false),
		Staging: filepath.Join(d.m.cfg.PluginsDir, "kubernetes.io", "csi", from.GetDriver(), sum, "globalmount"),
		Target:  filepath.Join(b.home, volumesDir, d.name(), b.pv.GetMetadata().GetName(), "mount"),
	}
	var err error
	if ref := from.GetNodeStageSecretRef(); ref != nil {
		if want.StageSecrets, err = d.m.credentials(ctx, ref.GetNamespace(), ref.GetName()); err != nil {
			return err
		}
	}
	if ref := from.GetNodePublishSecretRef(); ref != nil {
		if want.PublishSecrets, err = d.m.credentials(ctx, ref.GetNamespace(), ref.GetName()); err != nil {
			return err
		}
	}
	given, err := d.m.drive(ctx, b.volume, want, at)
	if err != nil || given || at.ReadOnly || from.GetFsType() == "" ||
		!slices.Contains(b.pv.GetSpec().GetAccessModes(), "ReadWriteOnce") {
		return err
	}
	return b.give(ctx, at.Path, false)
}

// drive has the driver set a volume up, and reports whether it gives it to the pod's fsGroup. Once it is found, it is
// noted that it is asked, so that it is asked to release the volume whatever comes of it.
func (m *Manager) drive(ctx context.Context, v *volume, want csi.Volume, at *place) (given bool, err error) {
	if group := payload.FSGroup(v.pod); group != nil {
		want.Group = fmt.Sprint(*group)
	}
	with := *at
	with.Path, with.Held, with.Plugin = want.Target, true, byDriver{}.name()
	with.Driven = &driven{Driver: want.Driver, Handle: want.Handle, Staging: want.Staging, Target: want.Target,
		Ephemeral: want.Ephemeral}
	var asked, over bool // guarded by m.shared
	found := func() error {
		m.shared.Lock()
		defer m.shared.Unlock()
		if over {
			return errors.New("nobody waits for the volume any more")
		}
		err := reserve(v, with)
		asked = err == nil
		return err
	}
	var gives bool
	err = m.alone(ctx, with.Driven.key(), "making the volume usable", func(ctx context.Context) (err error) {
		gives, err = csi.Drivers{Registry: m.cfg.RegistryDir}.SetUp(ctx, want, found)
		return err
	})
	m.shared.Lock()
	over = true
	if asked {
		*at = with
	}
	m.shared.Unlock()
	return err == nil && gives, err
}

// key is what pods that share the volume take turns by, so that it is not unstaged while another needs it.
func (d *driven) key() string { return d.Driver + "/" + d.Handle }

// release implements releaser.
func (d byDriver) release(ctx context.Context, home string, at place) error {
	if at.Driven == nil {
		return nil
	}
	return d.m.alone(ctx, at.Driven.key(), "releasing the volume", func(ctx context.Context) error {
		return d.releaseAlone(ctx, home, at)
	})
}

func (d byDriver) releaseAlone(ctx context.Context, home string, at place) error {
	d.m.shared.Lock()
	last, err := d.m.lastOf(home, at.Driven)
	d.m.shared.Unlock()
	if err != nil {
		return err
	}
	v := csi.Volume{Driver: at.Driven.Driver, Handle: at.Driven.Handle, Staging: at.Driven.Staging,
		Target: at.Driven.Target, Ephemeral: at.Driven.Ephemeral}
	if err := (csi.Drivers{Registry: d.m.cfg.RegistryDir}).Release(ctx, v, last); err != nil {
		return err
	}
	if last && v.Staging != "" {
		// What a driver leaves mounted there is not looked into: then the directories stay.
		_ = errors.Join(os.Remove(v.Staging), os.Remove(filepath.Dir(v.Staging)))
	}
	return nil
}

// lastOf reports whether no other pod of the node uses a driver's volume.
func (m *Manager) lastOf(home string, of *driven) (bool, error) {
	last := true
	err := m.eachOther(home, func(_ string, at place) error {
		if at.Driven != nil && at.Driven.Driver == of.Driver && at.Driven.Handle == of.Handle {
			last = false
		}
		return nil
	})
	return last, err
}

// credentials returns a secret as drivers get it.
func (m *Manager) credentials(ctx context.Context, namespace, name string) (map[string]string, error) {
	s, err := m.cfg.Objects.Secret(ctx, namespace, name)
	if err != nil {
		return nil, fmt.Errorf("fetching the secret %s/%s for the driver: %w", namespace, name, err)
	}
	out := make(map[string]string, len(s.GetData()))
	for key, data := range s.GetData() {
		out[key] = string(data)
	}
	return out, nil
}

// podInfo returns the volume's attributes with who the pod is. Whether a driver wants that would be said by its
// CSIDriver object, which is not served; those that do not, pass it over.
func podInfo(p *corev1.Pod, attributes map[string]string, ephemeral bool) map[string]string {
	out := maps.Clone(attributes)
	if out == nil {
		out = make(map[string]string)
	}
	meta := p.GetMetadata()
	out["csi.storage.k8s.io/pod.name"] = meta.GetName()
	out["csi.storage.k8s.io/pod.namespace"] = meta.GetNamespace()
	out["csi.storage.k8s.io/pod.uid"] = meta.GetUid()
	out["csi.storage.k8s.io/serviceAccount.name"] = p.GetSpec().GetServiceAccountName()
	out["csi.storage.k8s.io/ephemeral"] = fmt.Sprint(ephemeral)
	return out
}

// accessMode returns the one of a volume's modes that allows the most.
func accessMode(modes []string) spec.VolumeCapability_AccessMode_Mode {
	switch {
	case slices.Contains(modes, "ReadWriteMany"):
		return spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case slices.Contains(modes, "ReadWriteOnce"), slices.Contains(modes, "ReadWriteOncePod"):
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case slices.Contains(modes, "ReadOnlyMany"):
		return spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	default:
		return spec.VolumeCapability_AccessMode_UNKNOWN
	}
}
