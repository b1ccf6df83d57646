package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/object/storage"
	"monoplane.dev/rules/nodeselector"
)

// Claims reads claims and the volumes that they are bound to. Errors are those of package apierrors.
type Claims interface {
	// Claim returns a claim.
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	// Volume returns a persistent volume.
	Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
}

// claimed is the volume that a claim is bound to: the pod's own choice, or one that was made for the pod.
type claimed struct{ m *Manager }

func (claimed) name() string { return "kubernetes.io~claim" }
func (claimed) is(v *corev1.VolumeSource) bool {
	return v.GetPersistentVolumeClaim() != nil || v.GetEphemeral() != nil
}

// bound is a claim with its volume, for a pod.
type bound struct {
	*volume

	claim *corev1.PersistentVolumeClaim
	pv    *corev1.PersistentVolume
	// readOnly: the pod or the volume allows reading alone.
	readOnly bool
}

func (c claimed) setUp(ctx context.Context, v *volume) (place, error) {
	b, err := c.find(ctx, v)
	if err != nil {
		return place{}, err
	}
	at := place{ReadOnly: b.readOnly, Claim: b.claim.GetMetadata().GetUid()}
	if slices.Contains(b.pv.GetSpec().GetAccessModes(), "ReadWriteOncePod") {
		if err := c.takeAlone(v, at); err != nil {
			return place{}, err
		}
	}
	err = c.bring(ctx, b, &at)
	return at, err
}

// takeAlone makes the pod the only one of the node that uses a claim.
func (c claimed) takeAlone(v *volume, at place) error {
	c.m.shared.Lock()
	defer c.m.shared.Unlock()
	err := c.m.eachOther(v.home, func(uid string, other place) error {
		if other.Claim != at.Claim {
			return nil
		}
		return fmt.Errorf("volume uses the ReadWriteOncePod access mode and is already in use by another pod of this node, "+
			"with uid %s", uid)
	})
	if err != nil {
		return err
	}
	return reserve(v, at)
}

// find reads the claim and its volume, and checks that the pod may use them here.
func (c claimed) find(ctx context.Context, v *volume) (*bound, error) {
	if c.m.cfg.Claims == nil {
		return nil, errors.New("this agent cannot read claims")
	}
	name := v.source.GetPersistentVolumeClaim().GetClaimName()
	if v.source.GetEphemeral() != nil {
		name = v.pod.GetMetadata().GetName() + "-" + v.name
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("error processing PVC %s/%s: %w", v.namespace(), name, fmt.Errorf(format, args...))
	}
	claim, err := c.m.cfg.Claims.Claim(ctx, v.namespace(), name)
	if err != nil {
		return nil, wrong("failed to fetch PVC from API server: %w", err)
	}
	if v.source.GetEphemeral() != nil && !ownedBy(claim, v.pod) {
		return nil, wrong("PVC was not created for pod %s/%s (pod is not owner)", v.namespace(),
			v.pod.GetMetadata().GetName())
	}
	switch {
	case claim.GetMetadata().GetDeletionTimestamp() != nil:
		return nil, wrong("PVC is being deleted")
	case claim.GetStatus().GetPhase() != "Bound" || claim.GetSpec().GetVolumeName() == "":
		return nil, wrong("PVC is not bound")
	}
	pv, err := c.m.cfg.Claims.Volume(ctx, claim.GetSpec().GetVolumeName())
	if err != nil {
		return nil, wrong("failed to fetch PV %s from API server: %w", claim.GetSpec().GetVolumeName(), err)
	}
	if has, want := pv.GetSpec().GetClaimRef().GetUid(), claim.GetMetadata().GetUid(); has != want {
		return nil, wrong("PV %s is not bound to this claim: its claimRef.uid is %q, not %q", pv.GetMetadata().GetName(),
			has, want)
	}
	needs, node := nodeselector.OfVolume(pv), c.m.cfg.Node()
	if needs != nil && node != nil && !needs.Matches(node) {
		return nil, errors.New("MountVolume.NodeAffinity check failed: no matching NodeSelectorTerms")
	}
	modes := pv.GetSpec().GetAccessModes()
	return &bound{volume: v, claim: claim, pv: pv,
		readOnly: v.source.GetPersistentVolumeClaim().GetReadOnly() || len(modes) == 1 && modes[0] == "ReadOnlyMany",
	}, checkMode(v, pv.GetSpec().GetVolumeMode() == "Block")
}

func ownedBy(claim *corev1.PersistentVolumeClaim, p *corev1.Pod) bool {
	for _, owner := range claim.GetMetadata().GetOwnerReferences() {
		if owner.GetController() && owner.GetUid() == p.GetMetadata().GetUid() {
			return true
		}
	}
	return false
}

// checkMode makes sure that containers use devices as devices and file systems as file systems.
func checkMode(v *volume, block bool) error {
	for _, c := range containersOf(v.pod) {
		for _, at := range c.GetVolumeMounts() {
			if block && at.GetName() == v.name {
				return fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", v.name)
			}
		}
		for _, at := range c.GetVolumeDevices() {
			if !block && at.GetName() == v.name {
				return fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", v.name)
			}
		}
	}
	return nil
}

// bring makes the volume reachable by what kind of storage it is, and completes where it is.
func (c claimed) bring(ctx context.Context, b *bound, at *place) error {
	from := b.pv.GetSpec().GetPersistentVolumeSource()
	block := b.pv.GetSpec().GetVolumeMode() == "Block"
	switch {
	case from.GetLocal() != nil:
		at.Path, at.Device = c.m.localPath(b.pv), block
		if !block && b.pv.GetMetadata().GetAnnotations()[storage.ProvisionedBy] == storage.LocalProvisioner {
			if err := makeLocal(at.Path); err != nil {
				return err
			}
		}
		if err := checkLocal(at.Path, block); err != nil || block || b.readOnly {
			return err
		}
		return b.give(ctx, at.Path, false)
	case block:
		return errors.New("volumeMode Block is supported for local volumes only")
	case from.GetHostPath() != nil:
		at.Path = from.GetHostPath().GetPath()
		return checkType(at.Path, from.GetHostPath().GetType())
	case from.GetNfs() != nil:
		at.Path = filepath.Join(b.home, volumesDir, nfs{}.name(), b.pv.GetMetadata().GetName())
		at.ReadOnly = at.ReadOnly || from.GetNfs().GetReadOnly()
		return mountNFS(ctx, from.GetNfs(), at.Path, at.ReadOnly, b.pv.GetSpec().GetMountOptions())
	case from.GetCsi() != nil:
		return byDriver(c).persistent(ctx, b, at)
	default:
		return fmt.Errorf("no volume plugin matched: %s", unsupported(from))
	}
}

// makeLocal makes the directory of a new volume, which users of all containers may write to.
func makeLocal(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, 0o777) // whatever the agent's umask
}

// checkLocal makes sure that a local volume is there, and is what its mode says.
func checkLocal(path string, block bool) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("path %q does not exist", path)
	case err != nil:
		return err
	case block && info.Mode().Type() != fs.ModeDevice:
		return fmt.Errorf("path %q is not a block device, which volumeMode Block needs", path)
	case !block && !info.IsDir():
		return fmt.Errorf("path %q is not a directory: the agent neither formats devices nor mounts them", path)
	}
	return nil
}
