package podspec

import (
	"fmt"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// WarningsOfPod returns what whoever makes a pod is told of it though it is made.
func WarningsOfPod(p *corev1.Pod) validation.Warnings {
	w := warnings{spec: p.GetSpec(), at: validation.NewPath("spec"), metadata: validation.NewPath("metadata")}
	if msgs := utilvalidation.IsDNS1123Label(p.GetMetadata().GetName()); len(msgs) > 0 {
		w.Add(w.metadata.Child("name"), "this is used in the Pod's hostname, which can result in surprising behavior; "+
			"a DNS label is recommended: %v", msgs)
	}
	w.all(p.GetMetadata().GetAnnotations(), p.GetSpec().GetOs().GetName() != osWindows)
	return w.Warnings
}

// WarningsOfTemplate is WarningsOfPod for a template of pods at a path.
func WarningsOfTemplate(at *validation.Path, t *corev1.PodTemplateSpec) validation.Warnings {
	w := warnings{spec: t.GetSpec(), at: at.Child("spec"), metadata: at.Child("metadata")}
	w.all(t.GetMetadata().GetAnnotations(), true)
	return w.Warnings
}

// warnings collects those of one pod or template.
type warnings struct {
	validation.Warnings
	spec         *corev1.PodSpec
	at, metadata *validation.Path // of the spec and of the metadata
}

// all collects everything, in Kubernetes' order. Whether old annotations of AppArmor count is the caller's to say.
func (w *warnings) all(annotations map[string]string, appArmor bool) {
	s := w.spec
	for _, key := range validation.Sorted(&validation.Few{}, s.GetNodeSelector()) {
		if text, old := validation.OldNodeLabel(key); old {
			w.Add(w.at.Child("nodeSelector").Key(key), "%s", text)
		}
	}
	w.nodeAffinity(w.at.Child("affinity").Child("nodeAffinity"), s.GetAffinity().GetNodeAffinity())
	for i, c := range s.GetTopologySpreadConstraints() {
		at := w.at.Child("topologySpreadConstraints").Index(i)
		if text, old := validation.OldNodeLabel(c.GetTopologyKey()); old {
			w.Add(at.Child("topologyKey"), "%s is %s", c.GetTopologyKey(), text)
		}
		w.selector(at, c.GetLabelSelector())
	}
	for _, old := range oldAnnotations {
		if _, ok := annotations[old.key]; ok {
			w.Add(w.metadata.Child("annotations").Key(old.key), "%s", old.text)
		}
	}
	w.volumes(w.at.Child("volumes"))
	w.names()
	for _, resource := range inBytes {
		w.WholeBytes(w.at.Child("overhead"), s.GetOverhead(), resource)
	}
	w.profiles(annotations, appArmor)
	w.ports()
	if seconds := s.TerminationGracePeriodSeconds; seconds != nil && *seconds < 0 {
		w.Add(w.at.Child("terminationGracePeriodSeconds"),
			"must be >= 0; negative values are invalid and will be treated as 1")
	}
	w.podAffinity(w.at.Child("affinity").Child("podAffinity"), s.GetAffinity().GetPodAffinity())
	w.podAffinity(w.at.Child("affinity").Child("podAntiAffinity"), s.GetAffinity().GetPodAntiAffinity())
	for i, ip := range s.GetDnsConfig().GetNameservers() {
		w.IP(w.at.Child("dnsConfig").Child("nameservers").Index(i), ip)
	}
	for i, a := range s.GetHostAliases() {
		w.IP(w.at.Child("hostAliases").Index(i).Child("ip"), a.GetIp())
	}
}

// inBytes are the resources that are counted in bytes.
var inBytes = []string{"memory", "ephemeral-storage"}

// oldAnnotations are annotations that have no effect any more.
var oldAnnotations = []struct{ key, text string }{
	{"scheduler.alpha.kubernetes.io/critical-pod", `non-functional in v1.16+; use the "priorityClassName" field instead`},
	{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
}

func (w *warnings) nodeAffinity(at *validation.Path, a *corev1.NodeAffinity) {
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution",
		"preferredDuringSchedulingIgnoredDuringExecution"
	for i, t := range a.GetRequiredDuringSchedulingIgnoredDuringExecution().GetNodeSelectorTerms() {
		WarnOfTerm(&w.Warnings, at.Child(required).Child("nodeSelectorTerms").Index(i), t)
	}
	for i, t := range a.GetPreferredDuringSchedulingIgnoredDuringExecution() {
		at := at.Child(preferred).Index(i).Child("preference")
		for j, e := range t.GetPreference().GetMatchExpressions() {
			at := at.Child("matchExpressions").Index(j)
			warnOfKey(&w.Warnings, at, e)
			for k, v := range e.GetValues() {
				for _, msg := range utilvalidation.IsValidLabelValue(v) {
					w.Add(at.Child("values").Index(k), "%s is invalid, %s", v, msg)
				}
			}
		}
	}
}

// WarnOfTerm warns of labels of nodes that have other names since.
func WarnOfTerm(w *validation.Warnings, at *validation.Path, t *corev1.NodeSelectorTerm) {
	for i, e := range t.GetMatchExpressions() {
		warnOfKey(w, at.Child("matchExpressions").Index(i), e)
	}
}

func warnOfKey(w *validation.Warnings, at *validation.Path, e *corev1.NodeSelectorRequirement) {
	if text, old := validation.OldNodeLabel(e.GetKey()); old {
		w.Add(at.Child("key"), "%s is %s", e.GetKey(), text)
	}
}

// selector warns of a selector that selects nothing since it is not there.
func (w *warnings) selector(at *validation.Path, s *metav1.LabelSelector) {
	if s == nil {
		w.Add(at.Child("labelSelector"), "a null labelSelector results in matching no pod")
	}
}

// affinity is what is asked of other pods.
type affinity interface {
	GetRequiredDuringSchedulingIgnoredDuringExecution() []*corev1.PodAffinityTerm
	GetPreferredDuringSchedulingIgnoredDuringExecution() []*corev1.WeightedPodAffinityTerm
}

func (w *warnings) podAffinity(at *validation.Path, a affinity) {
	for i, t := range a.GetRequiredDuringSchedulingIgnoredDuringExecution() {
		w.selector(at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i), t.GetLabelSelector())
	}
	for i, t := range a.GetPreferredDuringSchedulingIgnoredDuringExecution() {
		w.selector(at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm"),
			t.GetPodAffinityTerm().GetLabelSelector())
	}
}

// names warns of host aliases and pull secrets that are there twice, or have no name.
func (w *warnings) names() {
	seen := map[string]bool{}
	for i, a := range w.spec.GetHostAliases() {
		if seen[a.GetIp()] {
			w.Add(w.at.Child("hostAliases").Index(i).Child("ip"), "duplicate ip %q", a.GetIp())
		}
		seen[a.GetIp()] = true
	}
	at := w.at.Child("imagePullSecrets")
	seen = map[string]bool{}
	for i, s := range w.spec.GetImagePullSecrets() {
		if seen[s.GetName()] {
			w.Add(at.Index(i).Child("name"), "duplicate name %q", s.GetName())
		}
		seen[s.GetName()] = true
	}
	for i, s := range w.spec.GetImagePullSecrets() {
		if s.GetName() == "" {
			w.Add(at.Index(i).Child("name"), `invalid empty name ""`)
		}
	}
}

// profiles warns of annotations in place of profiles, and container by container of amounts and variables.
func (w *warnings) profiles(annotations map[string]string, appArmor bool) {
	const field = `use the "%sProfile" field instead`
	at := w.metadata.Child("annotations")
	unread := func(key string, profile *corev1.SeccompProfile) {
		if _, ok := annotations[key]; ok && profile == nil {
			w.Add(at.Key(key), "non-functional in v1.27+; "+field, "seccomp")
		}
	}
	unread(annotationSeccompPod, w.spec.GetSecurityContext().GetSeccompProfile())
	ofPod := w.spec.GetSecurityContext().GetAppArmorProfile()
	for c, p := range (&Checker{at: w.at, spec: w.spec}).each {
		unread(prefixSeccomp+c.GetName(), c.GetSecurityContext().GetSeccompProfile())
		key := PrefixAppArmor + c.GetName()
		if old, ok := annotations[key]; ok && appArmor && c.GetSecurityContext().GetAppArmorProfile() == nil &&
			!saysProfile(old, ofPod) {
			w.Add(at.Key(key), "deprecated since v1.30; "+field, "appArmor")
		}
		for _, resource := range inBytes {
			w.WholeBytes(p.Child("resources").Child("limits"), c.GetResources().GetLimits(), resource)
			w.WholeBytes(p.Child("resources").Child("requests"), c.GetResources().GetRequests(), resource)
		}
		w.variables(p.Child("env"), c.GetEnv())
	}
}

// saysProfile says whether an old annotation means a profile.
func saysProfile(annotation string, p *corev1.AppArmorProfile) bool {
	switch p.GetType() {
	case "Unconfined":
		return annotation == "unconfined"
	case "RuntimeDefault":
		return annotation == "runtime/default"
	case "Localhost":
		return p.GetLocalhostProfile() != "" && annotation == "localhost/"+p.GetLocalhostProfile()
	}
	return false
}

// variables warns of variables that are there twice, unless the later one says what it adds to the other.
func (w *warnings) variables(at *validation.Path, env []*corev1.EnvVar) {
	seen := map[string]bool{}
	for i, e := range env {
		before := "$(" + e.GetName() + ")"
		if seen[e.GetName()] &&
			(e.GetValueFrom() != nil || e.GetValue() == before || !strings.Contains(e.GetValue(), before)) {
			w.Add(at.Index(i), "hides previous definition of %q, which may be dropped when using apply", e.GetName())
		}
		seen[e.GetName()] = true
	}
}

// ports warns of ports of any containers that are in each other's way.
func (w *warnings) ports() {
	type known struct {
		at   *validation.Path
		port *corev1.ContainerPort
	}
	all, names := map[string][]known{}, map[string]*validation.Path{}
	containers := (&Checker{at: w.at, spec: w.spec}).each
	for c, p := range containers {
		for i, port := range c.GetPorts() {
			at := p.Child("ports").Index(i)
			if port.GetHostIP() != "" && port.GetHostPort() == 0 {
				w.Add(at, "hostIP set without hostPort: {Name:%s HostPort:0 ContainerPort:%d Protocol:%s HostIP:%s}",
					port.GetName(), port.GetContainerPort(), port.GetProtocol(), port.GetHostIP())
			}
			key := fmt.Sprint(port.GetContainerPort(), "/", port.GetProtocol())
			for _, other := range all[key] {
				if text := inEachOthersWay(port, other.port); text != "" {
					w.Add(at, "%s port definition with %s", text, other.at)
				}
			}
			all[key] = append(all[key], known{at, port})
		}
	}
	for c, p := range containers {
		for i, port := range c.GetPorts() {
			name, at := port.GetName(), p.Child("ports").Index(i)
			switch first, ok := names[name]; {
			case name == "":
			case ok:
				w.Add(at, "duplicate port name %q with %s, services and probes that select ports by name will use %s",
					name, first, first)
			default:
				names[name] = at
			}
		}
	}
}

// inEachOthersWay says how two definitions of one port are; empty when both are clear.
func inEachOthersWay(a, b *corev1.ContainerPort) string {
	switch {
	case a.GetHostIP() == b.GetHostIP() && a.GetHostPort() == b.GetHostPort():
		return "duplicate"
	case a.GetHostPort() == 0 || b.GetHostPort() == 0:
		return "overlapping"
	case a.GetHostPort() == b.GetHostPort() && (a.GetHostIP() == "") != (b.GetHostIP() == ""):
		return "dangerously ambiguous"
	}
	return ""
}
