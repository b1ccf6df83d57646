package scenario

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	storagev1rpc "monoplane.dev/api/storage/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/scheduler/test/objects"
)

// accessModes are the words for access modes.
var accessModes = map[string]string{
	"rwo": "ReadWriteOnce", "rox": "ReadOnlyMany", "rwx": "ReadWriteMany", "rwop": "ReadWriteOncePod",
}

// storage is a command about claims, volumes or classes. The finalizers are those that the server sets.
func (w *player) storage(words []string) {
	ctx, name := context.Background(), words[1]
	switch words[0] {
	case "sc":
		late := "Immediate"
		c := &storagev1.StorageClass{Metadata: &metav1.ObjectMeta{Name: name}, Provisioner: "kubernetes.io/no-provisioner",
			VolumeBindingMode: &late}
		for _, word := range words[2:] {
			kind, rest, _ := strings.Cut(word, ":")
			switch kind {
			case "late":
				late = "WaitForFirstConsumer"
			case "by":
				c.Provisioner = rest
			case "in":
				key, value, _ := strings.Cut(rest, "=")
				c.AllowedTopologies = append(c.AllowedTopologies, &corev1.TopologySelectorTerm{
					MatchLabelExpressions: []*corev1.TopologySelectorLabelRequirement{{Key: key, Values: strings.Split(value, ",")}},
				})
			default:
				w.Fatalf("unknown word %q", word)
			}
		}
		w.must(w.c.StorageClasses.Create(ctx, &storagev1rpc.CreateStorageClassRequest{Object: c}))
	case "pv":
		v := &corev1.PersistentVolume{
			Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{},
				Finalizers: []string{"kubernetes.io/pv-protection"}},
			Spec: &corev1.PersistentVolumeSpec{
				PersistentVolumeReclaimPolicy: "Retain",
				PersistentVolumeSource: &corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/" +
					name}},
			},
		}
		w.describeVolume(v, words[2:])
		w.must(w.c.PersistentVolumes.Create(ctx, &corev1rpc.CreatePersistentVolumeRequest{Object: v}))
	case "pvc":
		class := ""
		c := &corev1.PersistentVolumeClaim{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, Finalizers: []string{"kubernetes.io/pvc-protection"}},
			Spec: &corev1.PersistentVolumeClaimSpec{StorageClassName: &class,
				Resources: &corev1.VolumeResourceRequirements{}},
		}
		for _, word := range words[2:] {
			kind, rest, _ := strings.Cut(word, ":")
			switch {
			case strings.HasPrefix(word, "storage="):
				c.Spec.Resources.Requests = objects.Quantities(word)
			case kind == "class":
				class = rest
			case kind == "volume":
				c.Spec.VolumeName = rest
			default:
				c.Spec.AccessModes = append(c.Spec.AccessModes, w.accessMode(word))
			}
		}
		w.must(w.c.PersistentVolumeClaims.Create(ctx, &corev1rpc.CreatePersistentVolumeClaimRequest{Namespace: "ns",
			Object: c}))
	case "delete-sc":
		w.must(w.c.StorageClasses.Delete(ctx, &metav1.DeleteRequest{Name: name}))
	case "delete-pv":
		w.must(w.c.PersistentVolumes.Delete(ctx, &metav1.DeleteRequest{Name: name}))
	case "delete-pvc":
		w.must(w.c.PersistentVolumeClaims.Delete(ctx, &metav1.DeleteRequest{Namespace: "ns", Name: name}))
	}
}

func (w *player) describeVolume(v *corev1.PersistentVolume, words []string) {
	for _, word := range words {
		kind, rest, _ := strings.Cut(word, ":")
		key, value, _ := strings.Cut(rest, "=")
		switch {
		case strings.HasPrefix(word, "storage="):
			v.Spec.Capacity = objects.Quantities(word)
		case kind == "class":
			v.Spec.StorageClassName = rest
		case kind == "label":
			v.Metadata.Labels[key] = value
		case kind == "on":
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []*corev1.NodeSelectorTerm{{
					MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: key, Operator: "In",
						Values: strings.Split(value, ",")}},
				}}}}
		case kind == "for":
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: rest}
		default:
			v.Spec.AccessModes = append(v.Spec.AccessModes, w.accessMode(word))
		}
	}
}

func (w *player) accessMode(word string) string {
	w.Helper()
	m, ok := accessModes[word]
	if !ok {
		w.Fatalf("unknown word %q", word)
	}
	return m
}

// showClaims says which volumes the claims have. Names that the provisioner makes up are left out, since they tell
// nothing.
func (w *player) showClaims(out *bytes.Buffer) {
	ctx := context.Background()
	l, err := w.c.PersistentVolumeClaims.List(ctx, &metav1.ListRequest{})
	w.must(nil, err)
	for _, c := range l.GetItems() {
		text := c.GetStatus().GetPhase()
		if c.GetMetadata().GetDeletionTimestamp() != nil {
			text += " terminating"
		}
		if name := c.GetSpec().GetVolumeName(); name != "" {
			v, err := w.c.PersistentVolumes.Get(ctx, &metav1.GetRequest{Name: name})
			switch {
			case apierrors.Is(err, apierrors.NotFound):
				text += " " + name + ", which is gone"
			case v.GetMetadata().GetAnnotations()["pv.kubernetes.io/provisioned-by"] != "":
				text += " one that was made"
			default:
				w.must(nil, err)
				text += " " + name
			}
		}
		fmt.Fprintf(out, "    claim %s: %s\n", c.GetMetadata().GetName(), text)
	}
}
