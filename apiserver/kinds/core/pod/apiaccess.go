package pod

import (
	"slices"
	"strings"

	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
)

const (
	// accessPrefix begins the names of volumes with what a pod needs in order to reach the API.
	accessPrefix = "kube-api-access-"
	// accessName is the name of the volume that pods are given. Kubernetes makes a new one for each pod; here all pods
	// have the same, so that those of one template stay the same, and share their parts in memory. It is in nobody's
	// way: a volume whose name begins so is taken for this one.
	accessName = accessPrefix + "token"
	// accessPath is where containers find it.
	accessPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	// accessSeconds is how long the token in it is valid at first; the agent renews it long before.
	accessSeconds = 3607
)

// access is the volume, and accessMount its mount in a container that has no other volume of that kind. All pods share
// them, as they would after having been compared with those of other pods: nobody changes a part of a stored object.
var (
	access      = accessVolume()
	accessMount = &corev1.VolumeMount{Name: accessName, ReadOnly: true, MountPath: accessPath}
)

// mountAccess gives a pod the volume with a token of its service account, the certificate of the cluster's authority
// and the name of the namespace, and each of its containers a mount of it, unless something is mounted there already.
func mountAccess(s *corev1.PodSpec) {
	mount, has := accessMount, false
	for _, v := range s.Volumes {
		if strings.HasPrefix(v.GetName(), accessPrefix) {
			mount, has = &corev1.VolumeMount{Name: v.GetName(), ReadOnly: true, MountPath: accessPath}, true
			break
		}
	}
	needed := false
	give := func(containers []*corev1.Container) {
	next:
		for _, c := range containers {
			for _, m := range c.GetVolumeMounts() {
				if m.GetMountPath() == accessPath {
					continue next
				}
			}
			c.VolumeMounts = append(c.VolumeMounts, mount)
			needed = true
		}
	}
	give(s.InitContainers)
	give(s.Containers)
	if needed && !has {
		s.Volumes = append(s.Volumes, access)
	}
}

// keepAccess puts back what a pod was given of its service account, for clients that write only what they know: the
// volume of mountAccess and its mounts, unless next has such a volume, and the secrets for pulling, unless it has any.
// A pod of another account, or of none, has no use for them: that the account cannot be changed is what is to be said.
func keepAccess(next, live *corev1.PodSpec) {
	if next.GetServiceAccountName() != live.GetServiceAccountName() {
		return
	}
	if len(next.ImagePullSecrets) == 0 {
		for _, secret := range live.GetImagePullSecrets() {
			next.ImagePullSecrets = append(next.ImagePullSecrets, object.Clone(secret))
		}
	}
	given := slices.IndexFunc(live.GetVolumes(), func(v *corev1.Volume) bool { return v.GetName() == accessName })
	if given < 0 || slices.ContainsFunc(next.Volumes, func(v *corev1.Volume) bool {
		return strings.HasPrefix(v.GetName(), accessPrefix)
	}) {
		return
	}
	next.Volumes = append(next.Volumes, object.Clone(live.Volumes[given]))
	keepAccessMounts(next.InitContainers, live.InitContainers)
	keepAccessMounts(next.Containers, live.Containers)
}

func keepAccessMounts(next, live []*corev1.Container) {
	for i := range min(len(next), len(live)) {
		if next[i].GetName() != live[i].GetName() {
			continue // which is refused
		}
		for _, m := range live[i].GetVolumeMounts() {
			if m.GetName() == accessName {
				next[i].VolumeMounts = append(next[i].VolumeMounts, object.Clone(m))
			}
		}
	}
}

// automounts says whether a pod is given a token of its account: it has the first word, its account the second.
func automounts(s *corev1.PodSpec, account *corev1.ServiceAccount) bool {
	switch {
	case s.AutomountServiceAccountToken != nil:
		return s.GetAutomountServiceAccountToken()
	case account.AutomountServiceAccountToken != nil:
		return account.GetAutomountServiceAccountToken()
	default:
		return true
	}
}

// accessVolume returns the volume, with all its defaults.
func accessVolume() *corev1.Volume {
	seconds, mode := int64(accessSeconds), int32(0o644)
	return &corev1.Volume{Name: accessName, VolumeSource: &corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: &mode,
		Sources: []*corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: &corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []*corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []*corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{ApiVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}}}
}
