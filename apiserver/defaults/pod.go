package defaults

import (
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/qos"
)

const (
	gracePeriod       = 30
	schedulerName     = "default-scheduler"
	serviceAccount    = "default"
	notReadySeconds   = 300
	taintNotReady     = "node.kubernetes.io/not-ready"
	taintUnreachable  = "node.kubernetes.io/unreachable"
	conditionSchedule = "PodScheduled"
)

// Pod fills in a pod's spec and reconciles its status; call it on create and on update.
func Pod(p *corev1.Pod) {
	if p.Metadata == nil {
		p.Metadata = &metav1.ObjectMeta{}
	}
	if p.Spec == nil {
		p.Spec = &corev1.PodSpec{}
	}
	if p.Status == nil {
		p.Status = &corev1.PodStatus{}
	}
	s := p.Spec
	for _, c := range s.Containers {
		requestsFromLimits(c)
	}
	for _, c := range s.InitContainers {
		requestsFromLimits(c)
	}
	podResources(s)
	podSpec(s)
	volumes(s.Volumes)
	containers(s.Containers, s.HostNetwork)
	containers(s.InitContainers, s.HostNetwork)
	for _, c := range s.EphemeralContainers {
		ephemeralContainer(c)
	}
	PodStatus(p.Status)
}

func podSpec(s *corev1.PodSpec) {
	set(&s.DnsPolicy, "ClusterFirst")
	set(&s.RestartPolicy, "Always")
	set(&s.SchedulerName, schedulerName)
	setPtr(&s.TerminationGracePeriodSeconds, gracePeriod)
	if *s.TerminationGracePeriodSeconds < 0 {
		// DEL-1: a negative period counts as 1.
		*s.TerminationGracePeriodSeconds = 1
	}
	setPtr(&s.EnableServiceLinks, true)
	if s.SecurityContext == nil {
		// kubectl debug relies on it.
		s.SecurityContext = &corev1.PodSecurityContext{}
	}
	set(&s.ServiceAccountName, s.ServiceAccount)
	s.ServiceAccount = s.ServiceAccountName
	roundAll(s.Overhead)
	if s.Resources != nil {
		roundAll(s.Resources.Limits)
		roundAll(s.Resources.Requests)
	}
}

// PodStatus keeps the old single fields and the lists that replaced them in step. Call it on the status
// that a client sends to the status subresource.
func PodStatus(s *corev1.PodStatus) {
	switch ips := s.PodIPs; {
	case s.PodIP != "" && (len(ips) == 0 || ips[0].GetIp() != s.PodIP):
		s.PodIPs = []*corev1.PodIP{{Ip: s.PodIP}}
	case s.PodIP == "" && len(ips) > 0:
		s.PodIP = ips[0].GetIp()
	}
}

// NewPod is Pod plus what creation adds: the identity it runs as, the tolerations that let it outlive a
// short absence of its node (NODE-3), and a fresh status with its QoS class (QOS-1). Whatever status the client
// sent is dropped (OBJ-5). Call it once, when the creation time is known.
func NewPod(p *corev1.Pod) {
	Pod(p)
	s := p.Spec
	set(&s.ServiceAccountName, serviceAccount)
	s.ServiceAccount = s.ServiceAccountName
	TolerateAbsence(s)
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

// TolerateAbsence lets a pod outlive a short absence of its node (NODE-3): unless it has tolerations of its own for that, it gets
// some for 300 s. Call it on update too, for clients that write the tolerations which they know; Kubernetes' admission
// (DefaultTolerationSeconds) does so.
func TolerateAbsence(s *corev1.PodSpec) {
	tolerateAbsence(s, taintNotReady)
	tolerateAbsence(s, taintUnreachable)
}

// ToleratesAbsence says whether a toleration is one of those that TolerateAbsence adds.
func ToleratesAbsence(t *corev1.Toleration) bool {
	return (t.GetKey() == taintNotReady || t.GetKey() == taintUnreachable) && t.GetEffect() == "NoExecute" &&
		t.TolerationSeconds != nil && *t.TolerationSeconds == notReadySeconds
}

// tolerateAbsence adds a toleration of a taint unless the pod has one.
func tolerateAbsence(s *corev1.PodSpec, taint string) {
	for _, t := range s.Tolerations {
		if (t.GetKey() == taint || t.GetKey() == "") && (t.GetEffect() == "NoExecute" || t.GetEffect() == "") {
			return
		}
	}
	seconds := int64(notReadySeconds)
	s.Tolerations = append(s.Tolerations, &corev1.Toleration{
		Key: taint, Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &seconds,
	})
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
