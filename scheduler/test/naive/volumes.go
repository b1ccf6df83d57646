package naive

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
)

// storage is what the volumes of pods depend on, as plain lists, and what is said about volumes in SCHED-4 and ATT-2
// once more, without a look at the plugins.
type storage struct {
	*Cluster
	claims  []*corev1.PersistentVolumeClaim
	volumes []*corev1.PersistentVolume
	classes []*storagev1.StorageClass
}

func (s *storage) claimsOf(pod *corev1.Pod) []*corev1.PersistentVolumeClaim {
	var list []*corev1.PersistentVolumeClaim
	for _, v := range pod.Spec.Volumes {
		for _, c := range s.claims {
			if c.Metadata.Namespace == pod.Metadata.Namespace &&
				c.Metadata.Name == v.VolumeSource.GetPersistentVolumeClaim().GetClaimName() {
				list = append(list, c)
			}
		}
	}
	return list
}

func (s *storage) volumeNamed(name string) *corev1.PersistentVolume {
	for _, v := range s.volumes {
		if v.Metadata.Name == name {
			return v
		}
	}
	return nil
}

// reaches: any term, and in it all requirements.
func (s *storage) reaches(v *corev1.PersistentVolume, node *corev1.Node) bool {
	if v.Spec.NodeAffinity == nil {
		return true
	}
	for _, t := range v.Spec.NodeAffinity.Required.NodeSelectorTerms {
		all := len(t.MatchExpressions) > 0
		for _, e := range t.MatchExpressions {
			value, has := node.Metadata.Labels[e.Key]
			all = all && has && slices.Contains(e.Values, value)
		}
		if all {
			return true
		}
	}
	return false
}

func bytesOf(q *metav1.Quantity) int64 {
	n := resource.MustParse(q.String_)
	return n.Value()
}

func (s *storage) binding(pod *corev1.Pod, node *corev1.Node) []string {
	var reasons []string
	var open []*corev1.PersistentVolumeClaim
	for _, c := range s.claimsOf(pod) {
		if c.Spec.VolumeName == "" {
			open = append(open, c)
		} else if !s.reaches(s.volumeNamed(c.Spec.VolumeName), node) && len(reasons) == 0 {
			reasons = []string{"node(s) didn't match PersistentVolume's node affinity"}
		}
	}
	slices.SortStableFunc(open, func(a, b *corev1.PersistentVolumeClaim) int {
		return int(bytesOf(a.Spec.Resources.Requests["storage"])>>20 - bytesOf(b.Spec.Resources.Requests["storage"])>>20)
	})
	taken := map[string]bool{}
	for _, c := range open {
		if !s.find(c, node, taken) {
			return append(reasons, "node(s) didn't find available persistent volumes to bind")
		}
	}
	return reasons
}

// find says whether a claim finds the smallest volume that is left, or may have one made.
func (s *storage) find(c *corev1.PersistentVolumeClaim, node *corev1.Node, taken map[string]bool) bool {
	on, selected := c.Metadata.Annotations["volume.kubernetes.io/selected-node"]
	if selected && on != node.Metadata.Name {
		return false
	}
	var meant, best *corev1.PersistentVolume
	for _, v := range s.volumes {
		size := bytesOf(v.Spec.Capacity["storage"])
		if selected || v.Spec.StorageClassName != *c.Spec.StorageClassName ||
			size < bytesOf(c.Spec.Resources.Requests["storage"]) {
			continue
		}
		if ref := v.Spec.ClaimRef; ref != nil {
			if ref.Namespace == c.Metadata.Namespace && ref.Name == c.Metadata.Name &&
				(ref.Uid == "" || ref.Uid == c.Metadata.Uid) {
				meant = v
			}
			continue
		}
		modes := true
		for _, m := range c.Spec.AccessModes {
			modes = modes && slices.Contains(v.Spec.AccessModes, m)
		}
		labels := c.Spec.Selector == nil || v.Metadata.Labels["disk"] == c.Spec.Selector.MatchLabels["disk"]
		fits := v.Status.Phase == "Available" && modes && labels && !taken[v.Metadata.Name] && s.reaches(v, node)
		if fits && (best == nil || size < bytesOf(best.Spec.Capacity["storage"])) {
			best = v
		}
	}
	if meant != nil {
		best = nil
		if s.reaches(meant, node) {
			return true
		}
	}
	if best != nil {
		taken[best.Metadata.Name] = true
		return true
	}
	for _, class := range s.classes {
		if class.Metadata.Name != *c.Spec.StorageClassName || class.Provisioner == "kubernetes.io/no-provisioner" {
			continue
		}
		in := len(class.AllowedTopologies) == 0
		for _, t := range class.AllowedTopologies {
			e := t.MatchLabelExpressions[0]
			in = in || slices.Contains(e.Values, node.Metadata.Labels[e.Key])
		}
		return in
	}
	return false
}

func (s *storage) zone(pod *corev1.Pod, node *corev1.Node) []string {
	_, zone := node.Metadata.Labels[zoneKey]
	_, region := node.Metadata.Labels["topology.kubernetes.io/region"]
	if !zone && !region {
		return nil
	}
	for _, c := range s.claimsOf(pod) {
		if c.Spec.VolumeName == "" {
			continue
		}
		for key, want := range s.volumeNamed(c.Spec.VolumeName).Metadata.Labels {
			switch key {
			case "failure-domain.beta.kubernetes.io/zone":
				key = zoneKey
			case zoneKey:
			default:
				continue
			}
			value, has := node.Metadata.Labels[key]
			if !has || want != value && want != "a__b" || want == "a__b" && value != "a" && value != "b" {
				return []string{"node(s) had no available volume zone"}
			}
		}
	}
	return nil
}

func (s *storage) oncePod(pod *corev1.Pod, _ *corev1.Node) []string {
	for _, c := range s.claimsOf(pod) {
		for _, other := range s.pods {
			if slices.Contains(c.Spec.AccessModes, "ReadWriteOncePod") && slices.Contains(s.claimsOf(other), c) {
				return []string{"node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already " +
					"in-use by another pod"}
			}
		}
	}
	return nil
}
