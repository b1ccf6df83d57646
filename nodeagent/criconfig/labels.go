package criconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/initcontainer"
)

// Labels on sandboxes and containers.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
	// LabelOwner tells whose a pod is when several agents use one runtime.
	LabelOwner = "monoplane.dev/owner"
)

// AnnotationHostnameFields is on the sandboxes of pods that ask for a host name of their own instead of taking the
// default one, or for other ways to find those of others: the names of the fields that do, separated by commas. A
// runtime whose pods share the node's names has to say that it does not honour them.
const AnnotationHostnameFields = "monoplane.dev/hostname-fields"

// Annotations on containers.
const (
	AnnotationHash          = "io.kubernetes.container.hash"
	AnnotationRestartCount  = "io.kubernetes.container.restartCount"
	AnnotationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	// AnnotationRestartDelay holds the back-off that follows the instance, as a Go duration.
	AnnotationRestartDelay = "monoplane.dev/restart-delay"
	// AnnotationVolumeImages holds what the runtime calls the images whose files the container mounts, with commas
	// between them: lists of containers do not name their mounts.
	AnnotationVolumeImages = "monoplane.dev/volume-images"
	// AnnotationStorageLimit holds the container's limit of ephemeral storage in bytes, if its pod is evicted for more.
	// CRI has no field for it.
	AnnotationStorageLimit = "monoplane.dev/ephemeral-storage-limit"
	// AnnotationFinishes is "true" on containers that are to end by themselves: init containers, but for sidecars, and
	// those of a Job's pods. Runtimes that simulate end them.
	AnnotationFinishes = "monoplane.dev/finishes"
)

func podLabels(p *corev1.Pod, owner string, more int) map[string]string {
	meta := p.GetMetadata()
	m := make(map[string]string, 4+more)
	m[LabelPodName], m[LabelPodNamespace], m[LabelPodUID] = meta.GetName(), meta.GetNamespace(), meta.GetUid()
	if owner != "" {
		m[LabelOwner] = owner
	}
	return m
}

// sandboxLabels returns the pod's own labels and those that identify it, which win.
func sandboxLabels(p *corev1.Pod, owner string) map[string]string {
	own := podLabels(p, owner, len(p.GetMetadata().GetLabels()))
	for k, v := range p.GetMetadata().GetLabels() {
		if _, taken := own[k]; !taken {
			own[k] = v
		}
	}
	return own
}

func containerLabels(p *corev1.Pod, owner, name string) map[string]string {
	m := podLabels(p, owner, 1)
	m[LabelContainerName] = name
	return m
}

// Instance tells instances of a container apart.
type Instance struct {
	// Attempt is how often the container was started before.
	Attempt uint32
	// Hash tells definitions apart.
	Hash string
	// Delay is the back-off that follows.
	Delay time.Duration
}

func containerAnnotations(p *corev1.Pod, c *corev1.Container, in Instance) map[string]string {
	m := map[string]string{
		AnnotationHash:         in.Hash,
		AnnotationRestartCount: strconv.FormatUint(uint64(in.Attempt), 10),
	}
	if in.Delay > 0 {
		m[AnnotationRestartDelay] = in.Delay.String()
	}
	if path := c.GetTerminationMessagePath(); path != "" {
		m[AnnotationMessagePath] = path
	}
	if policy := c.GetTerminationMessagePolicy(); policy != "" {
		m[AnnotationMessagePolicy] = policy
	}
	if finishes(p, c) {
		m[AnnotationFinishes] = "true"
	}
	return m
}

// finishes says whether the container is to end by itself.
func finishes(p *corev1.Pod, c *corev1.Container) bool {
	named := func(other *corev1.Container) bool { return other.GetName() == c.GetName() }
	if slices.ContainsFunc(p.GetSpec().GetInitContainers(), named) {
		return !initcontainer.IsSidecar(c)
	}
	return slices.ContainsFunc(p.GetSpec().GetContainers(), named) &&
		slices.ContainsFunc(p.GetMetadata().GetOwnerReferences(), func(o *metav1.OwnerReference) bool {
			return o.GetController() && o.GetKind() == "Job" && strings.HasPrefix(o.GetApiVersion(), "batch/")
		})
}

// VolumeImages returns the value of AnnotationVolumeImages for a container with these mounts; empty where none is an
// image.
func VolumeImages(mounts []*runtimeapi.Mount) string {
	var refs []string
	for _, m := range mounts {
		if ref := m.GetImage().GetImage(); ref != "" && !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return strings.Join(refs, ",")
}

// ParseInstance reads the annotations back. Malformed ones, which another program must have written, count
// as missing.
func ParseInstance(annotations map[string]string) Instance {
	in := Instance{Hash: annotations[AnnotationHash]}
	if n, err := strconv.ParseUint(annotations[AnnotationRestartCount], 10, 32); err == nil {
		in.Attempt = uint32(n)
	}
	if d, err := time.ParseDuration(annotations[AnnotationRestartDelay]); err == nil && d > 0 {
		in.Delay = d
	}
	return in
}

// sandboxAnnotations returns the pod's annotations. They are shared, not copied: objects are immutable.
// What kubectl keeps for itself is left out, since it repeats the whole pod.
func sandboxAnnotations(p *corev1.Pod) map[string]string {
	const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	all := p.GetMetadata().GetAnnotations()
	fields := hostnameFields(p)
	if _, there := all[lastApplied]; !there && fields == "" {
		return all
	}
	all = maps.Clone(all)
	delete(all, lastApplied)
	if fields != "" {
		if all == nil {
			all = map[string]string{}
		}
		all[AnnotationHostnameFields] = fields
	}
	return all
}

// maxFileName is what Linux' file systems allow a name to have, in bytes.
const maxFileName = 255

// PodDir returns the name of the pod's directory below the directory of all pods' logs, in the form that
// log collectors know: NAMESPACE_NAME_UID. Where that would be longer than a file's name may be, the pod's name is cut
// and ends with a hash of the whole. All other names stay as they always were: the directories of pods that run are
// found by them.
func PodDir(namespace, name, uid string) string {
	dir := strings.Join([]string{namespace, name, uid}, "_")
	if len(dir) <= maxFileName {
		return dir
	}
	sum := sha256.Sum256([]byte(dir))
	hash := "-" + hex.EncodeToString(sum[:8])
	cut := len(name) - (len(dir) + len(hash) - maxFileName)
	if cut < 0 { // nothing of the name is left: only a namespace or uid that no server has made is that long
		return hex.EncodeToString(sum[:])
	}
	return strings.Join([]string{namespace, name[:cut] + hash, uid}, "_")
}

// LogName returns the path of an instance's log file within the pod's directory. A container's name has 63 bytes at
// most.
func LogName(container string, attempt uint32) string {
	return container + "/" + strconv.FormatUint(uint64(attempt), 10) + ".log"
}

// MessageName returns the path of an instance's termination message within the pod's directory.
func MessageName(container string, attempt uint32) string {
	return container + "/" + strconv.FormatUint(uint64(attempt), 10) + ".termination"
}
