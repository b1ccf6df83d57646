//go:build kubernetes

package oracle

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/storage"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"k8s.io/kubernetes/pkg/apis/storage/validation"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
)

func theirPersistentVolume(t testing.TB, k, old *v1.PersistentVolume) verdict {
	now, was := internal(t, k, &core.PersistentVolume{}), internal(t, old, &core.PersistentVolume{})
	return verdict{
		Created: theirFaults(persistentvolume.Strategy.Validate(context.Background(), now)),
		Updated: theirFaults(persistentvolume.Strategy.ValidateUpdate(context.Background(), now, was)),
	}
}

func theirPersistentVolumeClaim(t testing.TB, k, old *v1.PersistentVolumeClaim) (v verdict) {
	ctx := context.Background()
	now, was := internal(t, k, &core.PersistentVolumeClaim{}), internal(t, old, &core.PersistentVolumeClaim{})
	fresh := now.DeepCopy()
	persistentvolumeclaim.Strategy.PrepareForCreate(ctx, fresh)
	v.Created = theirFaults(persistentvolumeclaim.Strategy.Validate(ctx, fresh))
	persistentvolumeclaim.Strategy.PrepareForUpdate(ctx, now, was)
	v.Updated = theirFaults(persistentvolumeclaim.Strategy.ValidateUpdate(ctx, now, was))
	return v
}

func theirPersistentVolumeClaimStatus(t testing.TB, k, old *v1.PersistentVolumeClaim) faults {
	now, was := internal(t, k, &core.PersistentVolumeClaim{}), internal(t, old, &core.PersistentVolumeClaim{})
	return theirFaults(persistentvolumeclaim.StatusStrategy.ValidateUpdate(context.Background(), now, was))
}

func theirStorageClass(t testing.TB, k, old *storagev1.StorageClass) verdict {
	now, was := internal(t, k, &storage.StorageClass{}), internal(t, old, &storage.StorageClass{})
	wrong, changed := validation.ValidateStorageClass(now), validation.ValidateStorageClassUpdate(now, was)
	return verdict{Created: theirFaults(wrong), Updated: theirFaults(append(wrong, changed...))}
}
