package storage_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/kinds/storage"
	"monoplane.dev/apiserver/kinds/test/kindtest"

	corev1 "monoplane.dev/api/core/v1"
	storagev1 "monoplane.dev/api/storage/v1"
)

func TestStorageClasses(t *testing.T) {
	class := func(change func(*storagev1.StorageClass)) *storagev1.StorageClass {
		c := &storagev1.StorageClass{Metadata: kindtest.Meta("s", ""), Provisioner: "Example.com/P",
			Parameters: map[string]string{"a": "b"}}
		storage.DefaultStorageClass(c)
		if change != nil {
			change(c)
		}
		return c
	}
	term := func(values ...string) *corev1.TopologySelectorTerm {
		return &corev1.TopologySelectorTerm{MatchLabelExpressions: []*corev1.TopologySelectorLabelRequirement{{Key: "zone",
			Values: values}}}
	}
	kindtest.Judge(t, "class", storage.ValidateStorageClass(class(nil)))
	kindtest.Judge(t, "nothing", storage.ValidateStorageClass(&storagev1.StorageClass{Metadata: kindtest.Meta("s", "")}),
		"Required provisioner", "Required volumeBindingMode")
	kindtest.Judge(t, "bad class", storage.ValidateStorageClass(class(func(c *storagev1.StorageClass) {
		c.Provisioner, c.ReclaimPolicy, c.VolumeBindingMode = "a b", proto.String("Recycle"), proto.String("Later")
		c.Parameters = map[string]string{"": strings.Repeat("x", 256<<10+1)}
		c.AllowedTopologies = []*corev1.TopologySelectorTerm{term("a", "b"), term("b", "a"), term("a", "a"), {}}
	})), "Invalid provisioner", "Invalid parameters", "TooLong parameters", "NotSupported reclaimPolicy",
		"NotSupported volumeBindingMode",
		"Duplicate allowedTopologies[1].matchLabelExpressions",
		"Duplicate allowedTopologies[2].matchLabelExpressions[0].values[1]",
		"Duplicate allowedTopologies[3].matchLabelExpressions")
	kindtest.Judge(t, "changes", storage.ValidateStorageClassUpdate(class(func(c *storagev1.StorageClass) {
		c.AllowVolumeExpansion, c.MountOptions, c.AllowedTopologies = proto.Bool(true), []string{"ro"},
			[]*corev1.TopologySelectorTerm{term("a")}
	}), class(nil)))
	kindtest.Judge(t, "what stays", storage.ValidateStorageClassUpdate(class(func(c *storagev1.StorageClass) {
		c.Provisioner, c.Parameters, c.ReclaimPolicy, c.VolumeBindingMode = "p", nil, proto.String("Retain"),
			proto.String("WaitForFirstConsumer")
	}), class(nil)), "Invalid parameters", "Invalid provisioner", "Invalid reclaimPolicy", "Invalid volumeBindingMode")
}
