package kinds

import (
	"time"

	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"

	storagev1 "monoplane.dev/api/storage/v1"
)

func (Config) storageClass() definition {
	return definition{strategy: registry.Typed[*storagev1.StorageClass]{
		Kind:     storagev1.StorageClassKind,
		Default:  defaults.StorageClass,
		Validate: validation.StorageClass,
		Main:     registry.TypedResource[*storagev1.StorageClass]{Validate: validation.StorageClassUpdate},
		Table: storageClassTable{columns[*storagev1.StorageClass]{
			{"Provisioner", "string", 0, "Who makes volumes.", func(o *storagev1.StorageClass, _ moment) any {
				return o.GetProvisioner()
			}},
			{"ReclaimPolicy", "string", 0, "What becomes of the storage when its claim goes.", func(o *storagev1.StorageClass, _ moment) any {
				return o.GetReclaimPolicy()
			}},
			{"VolumeBindingMode", "string", 0, "When claims are bound.", func(o *storagev1.StorageClass, _ moment) any {
				return o.GetVolumeBindingMode()
			}},
			{"AllowVolumeExpansion", "string", 0, "Whether claims may ask for more.", func(o *storagev1.StorageClass, _ moment) any {
				return o.GetAllowVolumeExpansion()
			}},
			age[*storagev1.StorageClass](),
		}},
	}.Strategy()}
}

// storageClassTable marks the default classes beside their names.
type storageClassTable struct {
	columns[*storagev1.StorageClass]
}

// Cells returns the cells of one class.
func (t storageClassTable) Cells(o object.Object, now time.Time) []any {
	cells := t.columns.Cells(o, now)
	if storage.IsDefault(o) {
		cells[0] = o.GetMetadata().GetName() + " (default)"
	}
	return cells
}

var _ table.Definition = storageClassTable{}
