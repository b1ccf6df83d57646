package podrefs

import corev1 "monoplane.dev/api/core/v1"

// Any returns the resource of an object that a pod refers to, with the kind of volume when it is one that does; empty
// when it refers to none. A static pod must not refer to any, since it is a node that has made it, and a node may read
// what its pods refer to (STATIC-1).
func Any(spec *corev1.PodSpec) string {
	if ServiceAccount(spec) != "" {
		return "serviceaccounts"
	}
	for range Secrets(spec) {
		return "secrets"
	}
	for range ConfigMaps(spec) {
		return "configmaps"
	}
	if len(spec.GetResourceClaims()) > 0 {
		return "resourceclaims"
	}
	for _, v := range spec.GetVolumes() {
		if r := ofVolume(v.GetVolumeSource()); r != "" {
			return r
		}
	}
	return ""
}

func ofVolume(s *corev1.VolumeSource) string {
	switch {
	case s.GetConfigMap() != nil:
		return "configmaps (via configmap volumes)"
	case s.GetSecret() != nil:
		return "secrets (via secret volumes)"
	case s.GetCsi() != nil:
		return "csidrivers (via CSI volumes)"
	case s.GetGlusterfs() != nil:
		return "endpoints (via glusterFS volumes)"
	case s.GetPersistentVolumeClaim() != nil:
		return "persistentvolumeclaims"
	case s.GetEphemeral() != nil:
		return "persistentvolumeclaims (via ephemeral volumes)"
	case s.GetAzureFile() != nil:
		return "secrets (via azureFile volumes)"
	}
	for _, p := range s.GetProjected().GetSources() {
		switch {
		case p.GetConfigMap() != nil:
			return "configmaps (via projected volumes)"
		case p.GetSecret() != nil:
			return "secrets (via projected volumes)"
		case p.GetServiceAccountToken() != nil:
			return "serviceaccounts (via projected volumes)"
		case p.GetClusterTrustBundle() != nil:
			return "clustertrustbundles"
		case p.GetPodCertificate() != nil:
			return "podcertificates"
		}
	}
	return ""
}
