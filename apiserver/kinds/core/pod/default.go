package pod

import (
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/qos"
	"monoplane.dev/rules/staticpod"
	"monoplane.dev/rules/taints"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

const (
	serviceAccount    = "default"
	notReadySeconds   = 300
	conditionSchedule = "PodScheduled"
)

// Default fills in a pod's spec and reconciles its status; call it on create and on update.
func Default(p *corev1.Pod) {
	defaults.Message(&p.Metadata)
	defaults.Message(&p.Spec)
	defaults.Message(&p.Status)
	s := p.Spec
	for _, c := range s.Containers {
		requestsFromLimits(c)
	}
	for _, c := range s.InitContainers {
		requestsFromLimits(c)
	}
	podResources(s)
	podspec.Default(s)
	podspec.DefaultOfPod(s)
	DefaultStatus(p.Status)
}

// DefaultStatus keeps the old single fields and the lists that replaced them in step. Call it on the status
// that a client sends to the status subresource.
func DefaultStatus(s *corev1.PodStatus) {
	switch ips := s.PodIPs; {
	case s.PodIP != "" && (len(ips) == 0 || ips[0].GetIp() != s.PodIP):
		s.PodIPs = []*corev1.PodIP{{Ip: s.PodIP}}
	case s.PodIP == "" && len(ips) > 0:
		s.PodIP = ips[0].GetIp()
	}
}

// CompleteNew does what creation adds to what the client has left out: the identity it runs as, the tolerations that
// let it outlive a short absence of its node (NODE-3), and a fresh status with its QoS class (QOS-1). Whatever status
// the client sent is dropped (OBJ-5). In Kubernetes admission does it, so that it belongs to no manager of fields.
// Call it once, after Default, when the creation time is known.
func CompleteNew(p *corev1.Pod) {
	s := p.Spec
	if !staticpod.IsMirror(p.Metadata) { // a static pod runs as nobody that the API knows
		defaults.Set(&s.ServiceAccountName, serviceAccount)
		s.ServiceAccount = s.ServiceAccountName
	}
	tolerateAbsence(s)
	labelKeys(p)
	p.Metadata.Generation = 1
	p.Status = &corev1.PodStatus{Phase: phase.Pending, QosClass: qos.Compute(s)}
	if len(s.SchedulingGates) > 0 {
		p.Status.Conditions = []*corev1.PodCondition{{
			Type: conditionSchedule, Status: "False", Reason: "SchedulingGated",
			Message:            "Scheduling is blocked due to non-empty scheduling gates",
			LastTransitionTime: p.Metadata.CreationTimestamp,
		}}
	}
}

// tolerateAbsence lets a pod outlive a short absence of its node (NODE-3): unless it has tolerations of its own for
// that, it gets some for 300 s. Call it on update too, for clients that write the tolerations which they know;
// Kubernetes' admission (DefaultTolerationSeconds) does so.
func tolerateAbsence(s *corev1.PodSpec) {
	tolerateTaint(s, forNotReady)
	tolerateTaint(s, forUnreachable)
}

// What tolerateAbsence adds is shared by all pods: nobody changes a part of a stored object.
var (
	forNotReady    = absenceToleration(taints.NotReady)
	forUnreachable = absenceToleration(taints.Unreachable)
)

func absenceToleration(taint string) *corev1.Toleration {
	seconds := int64(notReadySeconds)
	return &corev1.Toleration{
		Key: taint, Operator: "Exists", Effect: taints.NoExecute, TolerationSeconds: &seconds,
	}
}

// tolerateTaint adds a toleration unless the pod has one of that taint.
func tolerateTaint(s *corev1.PodSpec, own *corev1.Toleration) {
	for _, t := range s.Tolerations {
		if (t.GetKey() == own.GetKey() || t.GetKey() == "") && (t.GetEffect() == taints.NoExecute || t.GetEffect() == "") {
			return
		}
	}
	s.Tolerations = append(s.Tolerations, own)
}

// labelKeys turns matchLabelKeys and mismatchLabelKeys into selector requirements with the pod's own
// values, which is where the scheduler reads them.
func labelKeys(p *corev1.Pod) {
	labels := p.GetMetadata().GetLabels()
	require := func(s *metav1.LabelSelector, keys []string, operator string) {
		if s == nil {
			return
		}
		for _, k := range keys {
			if v, ok := labels[k]; ok {
				s.MatchExpressions = append(s.MatchExpressions,
					&metav1.LabelSelectorRequirement{Key: k, Operator: operator, Values: []string{v}})
			}
		}
	}
	a := p.Spec.GetAffinity()
	var terms []*corev1.PodAffinityTerm
	terms = append(terms, a.GetPodAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()...)
	terms = append(terms, a.GetPodAntiAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()...)
	for _, w := range a.GetPodAffinity().GetPreferredDuringSchedulingIgnoredDuringExecution() {
		terms = append(terms, w.GetPodAffinityTerm())
	}
	for _, w := range a.GetPodAntiAffinity().GetPreferredDuringSchedulingIgnoredDuringExecution() {
		terms = append(terms, w.GetPodAffinityTerm())
	}
	for _, t := range terms {
		require(t.GetLabelSelector(), t.GetMatchLabelKeys(), "In")
		require(t.GetLabelSelector(), t.GetMismatchLabelKeys(), "NotIn")
	}
	for _, c := range p.Spec.GetTopologySpreadConstraints() {
		require(c.GetLabelSelector(), c.GetMatchLabelKeys(), "In")
	}
}
