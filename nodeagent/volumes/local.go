package volumes

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/nodeagent/volumes/mount"
	"monoplane.dev/object/storage"
)

// madeName is how volumes are called that were made for claims: by the UID of the claim.
var madeName = regexp.MustCompile(`^pvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// localPath is where a local volume is: one that was made in the node's own directory of volumes is there, also when
// that has moved.
func (m *Manager) localPath(v *corev1.PersistentVolume) string {
	name, a := v.GetMetadata().GetName(), v.GetMetadata().GetAnnotations()
	if m.cfg.LocalDir != "" && a[storage.ProvisionedBy] == storage.LocalProvisioner && a[storage.MadeOn] != "" &&
		madeName.MatchString(name) {
		return filepath.Join(m.cfg.LocalDir, name)
	}
	return v.GetSpec().GetPersistentVolumeSource().GetLocal().GetPath()
}

// RemoveLocal removes the directory that the node has for a volume in its own directory of volumes, with all that is
// in it; that there is none is fine. Nothing outside is touched, whatever the name is and whatever the volume says of
// its path. Errors: Conflict while a pod of the node has the volume.
func (m *Manager) RemoveLocal(ctx context.Context, name string) error {
	if m.cfg.LocalDir == "" || !madeName.MatchString(name) {
		return apierrors.New(apierrors.BadRequest, "%q is no volume in the node's own directory", name)
	}
	dir := filepath.Join(m.cfg.LocalDir, name)
	m.shared.Lock()
	defer m.shared.Unlock()
	err := m.eachOther("", func(uid string, at place) error {
		if at.Path == dir {
			return apierrors.New(apierrors.Conflict, "a pod of this node, with uid %s, still has the volume %s", uid, name)
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = mount.Remove(ctx, dir)
	if m.cfg.Remove != nil && errors.Is(err, fs.ErrPermission) {
		// Without root the agent mounts nothing there, so that this is what containers have written, and no more.
		err = m.cfg.Remove(ctx, dir)
	}
	return err
}
