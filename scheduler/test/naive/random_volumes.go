package naive

import (
	"fmt"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/scheduler/test/objects"
)

// storage makes volumes, claims that are bound to some or wait for a consumer, classes, and has the pods of the
// cluster use some.
func (d Dice) storage() *storage {
	s := &storage{Cluster: d.Cluster()}
	late := "WaitForFirstConsumer"
	for _, name := range []string{"static", "made", "zonal"} {
		c := &storagev1.StorageClass{Metadata: &metav1.ObjectMeta{Name: name}, Provisioner: "example.com/p",
			VolumeBindingMode: &late}
		switch name {
		case "static":
			c.Provisioner = "kubernetes.io/no-provisioner"
		case "zonal":
			for range 1 + d.IntN(2) {
				c.AllowedTopologies = append(c.AllowedTopologies,
					&corev1.TopologySelectorTerm{MatchLabelExpressions: []*corev1.TopologySelectorLabelRequirement{
						{Key: pick(d, zoneKey, "rack"), Values: []string{pick(d, "a", "1"), pick(d, "b", "2")}},
					}})
			}
		}
		s.classes = append(s.classes, c)
	}
	for i := range d.IntN(12) {
		s.volumes = append(s.volumes, d.volume(fmt.Sprint("v", i)))
	}
	for i := range 1 + d.IntN(6) {
		c := d.claim(fmt.Sprint("c", i), pick(d, "ns", "ns", "other"))
		s.claims = append(s.claims, c)
		if len(s.volumes) == 0 {
			continue
		}
		v := s.volumes[d.IntN(len(s.volumes))]
		ref := &corev1.ObjectReference{Namespace: c.Metadata.Namespace, Name: c.Metadata.Name, Uid: c.Metadata.Uid}
		switch roll := d.IntN(4); {
		case v.Spec.ClaimRef != nil:
		case roll < 2:
			v.Spec.ClaimRef, v.Status.Phase = ref, "Bound"
			c.Spec.VolumeName, c.Status.Phase = v.Metadata.Name, "Bound"
			c.Metadata.Annotations["pv.kubernetes.io/bind-completed"] = "yes"
		case roll == 2:
			ref.Uid = pick(d, "", ref.Uid, "another")
			v.Spec.ClaimRef = ref
		}
	}
	for _, p := range s.pods {
		if d.one(4) {
			s.use(d, p)
		}
	}
	return s
}

// use has a pod use claims of its namespace.
func (s *storage) use(d Dice, p *corev1.Pod) {
	for i, c := range s.claims {
		if c.Metadata.Namespace == p.Metadata.Namespace && d.one(2) {
			p.Spec.Volumes = append(p.Spec.Volumes, &corev1.Volume{Name: fmt.Sprint("claim", i),
				VolumeSource: &corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Metadata.Name},
				}})
		}
	}
}

func (d Dice) volume(name string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		Metadata: &metav1.ObjectMeta{Name: name, Uid: name, Labels: map[string]string{"disk": pick(d, "ssd", "hdd")}},
		Spec: &corev1.PersistentVolumeSpec{
			Capacity:         objects.Quantities("storage=" + pick(d, "1Gi", "2Gi", "5Gi")),
			StorageClassName: pick(d, "static", "static", "made", "zonal"),
			AccessModes:      pick(d, []string{"ReadWriteOnce"}, []string{"ReadWriteOnce", "ReadWriteOncePod"}),
		},
		Status: &corev1.PersistentVolumeStatus{Phase: pick(d, "Available", "Available", "Available", "Released", "")},
	}
	if d.one(4) {
		v.Metadata.Labels[pick(d, zoneKey, "failure-domain.beta.kubernetes.io/zone")] = pick(d, "a", "b", "a__b")
	}
	if d.one(2) {
		r := &corev1.NodeSelector{}
		for range 1 + d.IntN(2) {
			t := &corev1.NodeSelectorTerm{}
			for range 1 + d.IntN(2) {
				t.MatchExpressions = append(t.MatchExpressions, pick(d,
					&corev1.NodeSelectorRequirement{Key: hostKey, Operator: "In", Values: []string{pick(d, "n0", "n1", "n2"),
						pick(d, "n1", "n3", "shared")}},
					&corev1.NodeSelectorRequirement{Key: zoneKey, Operator: "In", Values: []string{pick(d, "a", "b")}},
				))
			}
			r.NodeSelectorTerms = append(r.NodeSelectorTerms, t)
		}
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: r}
	}
	return v
}

func (d Dice) claim(name, namespace string) *corev1.PersistentVolumeClaim {
	class := pick(d, "static", "static", "made", "zonal")
	c := &corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name, Uid: name, Annotations: map[string]string{}},
		Spec: &corev1.PersistentVolumeClaimSpec{
			Resources: &corev1.VolumeResourceRequirements{Requests: objects.Quantities("storage=" +
				pick(d, "1Gi", "1100Mi", "2Gi"))},
			StorageClassName: &class, AccessModes: []string{pick(d, "ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod")},
		},
		Status: &corev1.PersistentVolumeClaimStatus{Phase: "Pending"},
	}
	if d.one(5) {
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": pick(d, "ssd", "hdd")}}
	}
	if d.one(8) && class != "static" {
		c.Metadata.Annotations["volume.kubernetes.io/selected-node"] = pick(d, "n0", "n1")
	}
	return c
}
