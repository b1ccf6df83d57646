package pod_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/pod"
	"monoplane.dev/apiserver/kinds/test/kindtest"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func ptr[T any](v T) *T { return &v }

// newPod returns a valid pod with two containers, as a user would write it.
func newPod() *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "p", Namespace: "default", Labels: map[string]string{"app": "a"}},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{
			{Name: "c", Image: "host", Command: []string{"sleep", "1"}}, {Name: "d", Image: "host"},
		}},
	}
}

func TestPod(t *testing.T) {
	type spec = corev1.PodSpec
	first := func(f func(*corev1.Container)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { f(p.Spec.Containers[0]) }
	}
	in := func(f func(*spec)) func(*corev1.Pod) { return func(p *corev1.Pod) { f(p.Spec) } }
	for _, c := range []struct {
		name   string
		change func(*corev1.Pod)
		want   []string
	}{
		{"valid", func(*corev1.Pod) {}, nil},
		// spec: OBJ-4
		{"metadata", func(p *corev1.Pod) {
			p.Metadata = &metav1.ObjectMeta{
				Name: "A_b", Namespace: "a.b", Labels: map[string]string{"a b": "ok", "ok": "a b"},
				Annotations: map[string]string{"": strings.Repeat("x", 257<<10)}, Finalizers: []string{"x"},
				OwnerReferences: []*metav1.OwnerReference{{ApiVersion: "v1", Kind: "Event", Name: "e"}, nil},
				ManagedFields:   []*metav1.ManagedFieldsEntry{{Operation: "Touch", FieldsType: "V9", Manager: "a\n"}},
			}
		}, []string{
			"Invalid metadata.name", "Invalid metadata.namespace", "Invalid metadata.labels", "Invalid metadata.labels",
			"Invalid metadata.annotations", "Invalid metadata.annotations", "TooLong metadata.annotations",
			"Invalid metadata.ownerReferences.uid", "Invalid metadata.ownerReferences",
			"Invalid metadata.ownerReferences.apiVersion", "Invalid metadata.ownerReferences.kind",
			"Invalid metadata.ownerReferences.name",
			"Invalid metadata.managedFields[0].operation", "Invalid metadata.managedFields[0].fieldsType",
			"Invalid metadata.managedFields[0].manager", "Invalid metadata.finalizers[0]",
		}},
		{"no names", func(p *corev1.Pod) { p.Metadata = nil },
			[]string{"Required metadata.name", "Required metadata.namespace"}},
		{"no containers", in(func(s *spec) { s.Containers = nil }), []string{"Required spec.containers"}},
		{"nil container", in(func(s *spec) { s.Containers = []*corev1.Container{nil} }), []string{
			"Required spec.containers[0].name", "Required spec.containers[0].image",
			"Required spec.containers[0].terminationMessagePolicy", "Required spec.containers[0].imagePullPolicy",
		}},
		// spec: INIT-2
		{"names are unique across lists", in(func(s *spec) {
			s.Containers[1].Name = "c"
			s.InitContainers = []*corev1.Container{{Name: "c", Image: "i"}, {Name: "i", Image: "i"}, {Name: "i", Image: "i"}}
		}), []string{"Duplicate spec.containers[1].name", "Duplicate spec.initContainers[0].name",
			"Duplicate spec.initContainers[2].name"}},
		// spec: INIT-2, INIT-4
		{"init containers have no probes, sidecars may", in(func(s *spec) {
			probe := &corev1.Probe{Handler: &corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"x"}}}}
			hooks := &corev1.Lifecycle{}
			s.InitContainers = []*corev1.Container{
				{Name: "i", Image: "i", LivenessProbe: probe, ReadinessProbe: probe, StartupProbe: probe, Lifecycle: hooks},
				{Name: "s", Image: "i", RestartPolicy: ptr("Always"), LivenessProbe: probe, ReadinessProbe: probe,
					StartupProbe: probe, Lifecycle: hooks},
			}
		}), []string{
			"Forbidden spec.initContainers[0].lifecycle", "Forbidden spec.initContainers[0].livenessProbe",
			"Forbidden spec.initContainers[0].readinessProbe", "Forbidden spec.initContainers[0].startupProbe",
		}},
		// spec: VOL-1
		{"the claim of a volume is named after the pod, whatever it is to be", func(p *corev1.Pod) {
			p.Metadata.Name = strings.Repeat("a.", 125) + "a"
			p.Spec.Volumes = []*corev1.Volume{
				{Name: "vol", VolumeSource: &corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		}, []string{"Required spec.volumes[0].ephemeral.volumeClaimTemplate", "Invalid spec.volumes[0].name"}},
		// spec: INIT-6
		{"ephemeral containers come later", in(func(s *spec) {
			s.EphemeralContainers = []*corev1.EphemeralContainer{
				{EphemeralContainerCommon: &corev1.EphemeralContainerCommon{Name: "e", Image: "i"}, TargetContainerName: "c"}}
		}), []string{"Forbidden spec.ephemeralContainers"}},
		{"image", first(func(c *corev1.Container) { c.Image = " host" }), []string{"Invalid spec.containers[0].image"}},
		{"ports", first(func(c *corev1.Container) {
			c.Ports = []*corev1.ContainerPort{
				{Name: "http", ContainerPort: 80, HostPort: 1}, {Name: "http", ContainerPort: 70000, HostPort: -1},
				{Name: "UPPER", Protocol: "tcp"},
				{ContainerPort: 5, HostPort: 1}, nil,
			}
		}), []string{
			"Duplicate spec.containers[0].ports[1].name", "Invalid spec.containers[0].ports[1].containerPort",
			"Invalid spec.containers[0].ports[1].hostPort", "Invalid spec.containers[0].ports[2].name",
			"Invalid spec.containers[0].ports[2].name",
			"Required spec.containers[0].ports[2].containerPort", "NotSupported spec.containers[0].ports[2].protocol",
			"Required spec.containers[0].ports[4].containerPort", "Required spec.containers[0].ports[4].protocol",
			"Duplicate spec.containers[0].ports[3].hostPort",
		}},
		{"ports on the node's network", in(func(s *spec) {
			s.HostNetwork = true
			s.Containers[0].Ports = []*corev1.ContainerPort{{ContainerPort: 80, HostPort: 81}, {ContainerPort: 82}}
		}), []string{"Invalid spec.containers[0].ports[0].hostPort"}},
		{"environment", first(func(c *corev1.Container) {
			field := func(path string) *corev1.EnvVarSource {
				return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
			}
			c.Env = []*corev1.EnvVar{
				{Name: ""}, {Name: "a=b"}, {Name: "ok", ValueFrom: field("status.podIP")},
				{Name: "x", ValueFrom: field("status.phase")},
				{Name: "x", ValueFrom: field("spec.nonsense")}, {Name: "x", ValueFrom: field("metadata.labels['a b']")},
				{Name: "x", ValueFrom: &corev1.EnvVarSource{}}, {Name: "x", Value: "v", ValueFrom: field("metadata.name")},
				{Name: "x", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu",
					Divisor: &metav1.Quantity{String_: "2"}}}},
				{Name: "x", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "a b"}}},
			}
			c.EnvFrom = []*corev1.EnvFromSource{{Prefix: "a="}}
		}), []string{
			"Required spec.containers[0].env[0].name", "Invalid spec.containers[0].env[1].name",
			"NotSupported spec.containers[0].env[3].valueFrom.fieldRef.fieldPath",
			"Invalid spec.containers[0].env[4].valueFrom.fieldRef.fieldPath",
			"Invalid spec.containers[0].env[5].valueFrom.fieldRef",
			"Invalid spec.containers[0].env[6].valueFrom", "Invalid spec.containers[0].env[7].valueFrom",
			"Invalid spec.containers[0].env[8].valueFrom.resourceFieldRef.divisor",
			"Invalid spec.containers[0].env[9].valueFrom.configMapKeyRef.name",
			"Invalid spec.containers[0].env[9].valueFrom.configMapKeyRef.key",
			"Invalid spec.containers[0].envFrom[0].prefix", "Invalid spec.containers[0].envFrom",
		}},
		// spec: CTR-10
		{"resources", first(func(c *corev1.Container) {
			c.Resources = &corev1.ResourceRequirements{
				Limits: kindtest.Amounts("cpu", "1", "memory", "-1", "example.com/gpu", "1500m", "foo", "1", "hugepages-2Mi",
					"3Mi"),
				Requests: kindtest.Amounts("cpu", "2", "example.com/x", "1", "ephemeral-storage", "lots"),
			}
		}), []string{
			"Invalid spec.containers[0].resources.limits[example.com/gpu]", "Invalid spec.containers[0].resources.limits[foo]",
			"Invalid spec.containers[0].resources.limits[foo]", "Invalid spec.containers[0].resources.limits[hugepages-2Mi]",
			"Invalid spec.containers[0].resources.limits[memory]", "Invalid spec.containers[0].resources.requests",
			"Invalid spec.containers[0].resources.requests[ephemeral-storage]",
			"Invalid spec.containers[0].resources.requests[example.com/gpu]", "Required spec.containers[0].resources.limits",
			"Invalid spec.containers[0].resources.requests[foo]",
			"Invalid spec.containers[0].resources.requests[foo]",
			"Invalid spec.containers[0].resources.requests[hugepages-2Mi]",
			"Invalid spec.containers[0].resources.requests[memory]",
		}},
		// spec: PROBE-1, PROBE-2
		{"probes", first(func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{SuccessThreshold: 2, PeriodSeconds: -1}
			c.ReadinessProbe = &corev1.Probe{TerminationGracePeriodSeconds: ptr(int64(0)), Handler: &corev1.ProbeHandler{
				Exec: &corev1.ExecAction{}, TcpSocket: &corev1.TCPSocketAction{Port: &metav1.IntOrString{IntVal: 80}},
			}}
			c.StartupProbe = &corev1.Probe{Handler: &corev1.ProbeHandler{HttpGet: &corev1.HTTPGetAction{
				Port: &metav1.IntOrString{Type: 1, StrVal: "UP"}, Scheme: "ftp", HttpHeaders: []*corev1.HTTPHeader{{Name: "a b"}},
			}}}
		}), []string{
			"Required spec.containers[0].livenessProbe", "Invalid spec.containers[0].livenessProbe.periodSeconds",
			"Invalid spec.containers[0].livenessProbe.successThreshold",
			"Required spec.containers[0].readinessProbe.exec.command",
			"Forbidden spec.containers[0].readinessProbe.tcpSocket",
			"Invalid spec.containers[0].readinessProbe.terminationGracePeriodSeconds",
			"Invalid spec.containers[0].readinessProbe.terminationGracePeriodSeconds",
			"Invalid spec.containers[0].startupProbe.httpGet.port", "Invalid spec.containers[0].startupProbe.httpGet.port",
			"NotSupported spec.containers[0].startupProbe.httpGet.scheme",
			"Invalid spec.containers[0].startupProbe.httpGet.httpHeaders",
		}},
		// spec: HOOK-1
		{"hooks", first(func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{
				PostStart: &corev1.LifecycleHandler{}, PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 31}},
				StopSignal: ptr("SIGUSR1"),
			}
		}), []string{
			"Required spec.containers[0].lifecycle.postStart", "Invalid spec.containers[0].lifecycle.preStop.sleep",
			"Forbidden spec.containers[0].lifecycle.stopSignal",
		}},
		// spec: VOL-1
		{"volumes", in(func(s *spec) {
			s.Volumes = []*corev1.Volume{
				{Name: "v", VolumeSource: &corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{},
					HostPath: &corev1.HostPathVolumeSource{Path: "/"}}},
				{Name: "ok"}, {Name: "ok"},
				{Name: "h", VolumeSource: &corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/a/../b",
					Type: ptr("Dir")}}},
				{Name: "s", VolumeSource: &corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{DefaultMode: ptr(int32(0o1000)),
					Items: []*corev1.KeyToPath{{Path: "../x"}}}}},
				nil,
			}
			s.Containers[0].VolumeMounts = []*corev1.VolumeMount{
				{Name: "ok", MountPath: "/a"}, {Name: "ok", MountPath: "/a", SubPath: "/x"},
				{Name: "v", MountPropagation: ptr("Bidirectional")},
			}
		}), []string{
			"Forbidden spec.volumes[0].hostPath", "Duplicate spec.volumes[2].name", "Invalid spec.volumes[3].hostPath.path",
			"NotSupported spec.volumes[3].hostPath.type", "Required spec.volumes[4].secret.secretName",
			"Invalid spec.volumes[4].secret.defaultMode", "Required spec.volumes[4].secret.items[0].key",
			"Invalid spec.volumes[4].secret.items[0].path", "Required spec.volumes[5]", "Required spec.volumes[5].name",
			"Invalid spec.containers[0].volumeMounts[1].mountPath", "Invalid spec.containers[0].volumeMounts.subPath",
			"NotFound spec.containers[0].volumeMounts[2].name", "Required spec.containers[0].volumeMounts[2].mountPath",
			"Forbidden spec.containers[0].volumeMounts.mountPropagation",
		}},
		{"placement", in(func(s *spec) {
			s.NodeSelector = map[string]string{"a b": "c"}
			s.NodeName = "A"
			s.SchedulingGates = []*corev1.PodSchedulingGate{{Name: "a b"}, {Name: "g"}, {Name: "g"}}
			s.Tolerations = []*corev1.Toleration{{Operator: "Equal"},
				{Key: "k", Operator: "Exists", Value: "v", Effect: "Later", TolerationSeconds: ptr(int64(1))},
				{Key: "k", Operator: "Lt", Value: "1"}}
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{},
				PreferredDuringSchedulingIgnoredDuringExecution: []*corev1.PreferredSchedulingTerm{
					{Preference: &corev1.NodeSelectorTerm{
						MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: "k", Operator: "In"},
							{Key: "k", Operator: "Exists", Values: []string{"v"}}, {Key: "k", Operator: "Gt"}, {Key: "k", Operator: "Is"}},
						MatchFields: []*corev1.NodeSelectorRequirement{{Key: "metadata.uid", Operator: "Exists"}},
					}}},
			}}
		}), []string{
			"Invalid spec.nodeSelector",
			"Required spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
			"Invalid spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight",
			"Required spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values",
			"Forbidden " +
				"spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[1].values",
			"Required spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[2].values",
			"Invalid spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[3].operator",
			"Invalid spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchFields[0].operator",
			"Invalid spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchFields[0].key",
			"Invalid spec.schedulingGates[0]", "Duplicate spec.schedulingGates[2]",
			"Invalid spec.tolerations[0].operator", "Invalid spec.tolerations[1].effect",
			"Invalid spec.tolerations[1].operator",
			"NotSupported spec.tolerations[1].effect", "NotSupported spec.tolerations[2].operator",
			"Invalid spec.nodeName", "Forbidden spec.nodeName",
		}},
		// spec: SPREAD-1
		{"topology spread", in(func(s *spec) {
			s.TopologySpreadConstraints = []*corev1.TopologySpreadConstraint{
				{TopologyKey: "z", WhenUnsatisfiable: "ScheduleAnyway", MinDomains: ptr(int32(0)), NodeAffinityPolicy: ptr("x")},
				{TopologyKey: "z", WhenUnsatisfiable: "ScheduleAnyway", MaxSkew: 1, MatchLabelKeys: []string{"a"}},
				{MaxSkew: 1},
			}
		}), []string{
			"Invalid spec.topologySpreadConstraints[0].maxSkew",
			"Duplicate spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}",
			"Invalid spec.topologySpreadConstraints[0].minDomains", "Invalid spec.topologySpreadConstraints[0].minDomains",
			"NotSupported spec.topologySpreadConstraints[0].nodeAffinityPolicy",
			"Forbidden spec.topologySpreadConstraints[1].matchLabelKeys",
			"Required spec.topologySpreadConstraints[2].topologyKey",
			"NotSupported spec.topologySpreadConstraints[2].whenUnsatisfiable",
		}},
		// spec: LIFE-8
		{"names and resolver", in(func(s *spec) {
			s.Hostname, s.Subdomain, s.ServiceAccountName, s.Os = "a.b", "A", "a_b", &corev1.PodOS{Name: "plan9"}
			s.RuntimeClassName, s.DnsPolicy = ptr(""), "None"
			s.HostAliases = []*corev1.HostAlias{{Ip: "1.2.3", Hostnames: []string{"a_b"}}}
			s.DnsConfig = &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1", "01.1.1.1", "x", "::ffff:1.2.3.4"},
				Searches: []string{"-"}, Options: []*corev1.PodDNSConfigOption{{}}}
			s.ReadinessGates = []*corev1.PodReadinessGate{{ConditionType: "a b"}}
		}), []string{
			"Invalid spec.serviceAccountName", "Invalid spec.hostname", "Invalid spec.subdomain",
			"Invalid spec.runtimeClassName",
			"Invalid spec.dnsConfig.nameservers", "Invalid spec.dnsConfig.nameservers[1]",
			"Invalid spec.dnsConfig.nameservers[2]",
			"Invalid spec.dnsConfig.nameservers[3]", "Invalid spec.dnsConfig.searches[0]", "Required spec.dnsConfig.options[0]",
			"Invalid spec.hostAliases[0].ip", "Invalid spec.hostAliases[0].hostnames[0]",
			"Invalid spec.readinessGates[0].conditionType",
			"NotSupported spec.os",
		}},
		// spec: SEC-1, USER-1
		{"security", in(func(s *spec) {
			s.HostUsers, s.HostPID, s.ShareProcessNamespace = ptr(false), true, ptr(true)
			s.SecurityContext = &corev1.PodSecurityContext{
				RunAsUser: ptr(int64(-1)), FsGroup: ptr(int64(1 << 40)),
				Sysctls:        []*corev1.Sysctl{{Name: "A"}, {Name: "a"}, {Name: "a"}},
				SeccompProfile: &corev1.SeccompProfile{Type: "Localhost"},
			}
			s.Containers[0].SecurityContext = &corev1.SecurityContext{
				Privileged: ptr(true), AllowPrivilegeEscalation: ptr(false), ProcMount: ptr("x"),
				AppArmorProfile: &corev1.AppArmorProfile{},
			}
		}), []string{
			"NotSupported spec.containers[0].securityContext.procMount", "Invalid spec.containers[0].securityContext",
			"Required spec.containers[0].securityContext.appArmorProfile.type",
			"Invalid spec.securityContext.shareProcessNamespace",
			"Invalid spec.securityContext.fsGroup", "Invalid spec.securityContext.runAsUser",
			"Invalid spec.securityContext.sysctls[0].name",
			"Duplicate spec.securityContext.sysctls[2].name", "Required spec.securityContext.seccompProfile.localhostProfile",
			"Forbidden spec.HostPID",
		}},
		{"policies and times", in(func(s *spec) {
			s.RestartPolicy, s.PreemptionPolicy, s.ActiveDeadlineSeconds = "Sometimes", ptr("x"), ptr(int64(0))
			s.Containers[0].RestartPolicyRules = []*corev1.ContainerRestartRule{{Action: "Stop"}}
			s.Containers[0].ImagePullPolicy, s.Containers[0].TerminationMessagePolicy = "x", "y"
		}), []string{
			"NotSupported spec.containers[0].terminationMessagePolicy", "NotSupported spec.containers[0].imagePullPolicy",
			"Required spec.containers[0].restartPolicy", "NotSupported spec.containers[0].restartPolicyRules[0].action",
			"Required spec.containers[0].restartPolicyRules[0].exitCodes", "NotSupported spec.restartPolicy",
			"NotSupported spec.preemptionPolicy", "Invalid spec.activeDeadlineSeconds",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPod()
			c.change(p)
			asCreated(p)
			before := proto.Clone(p)
			causes := pod.Validate(p)
			if got, want := kindtest.Faults(causes), kindtest.Lines(c.want...); got != want {
				t.Errorf("faults:\n%swant:\n%s", got, want)
			}
			if !proto.Equal(p, before) {
				t.Error("validation changed the pod")
			}
		})
	}
}

// spec: OBJ-3
func TestMessagesAreThoseOfKubernetes(t *testing.T) {
	p := newPod()
	p.Metadata.Name = "Up"
	p.Spec.Containers[0].Image = ""
	p.Spec.Containers[0].Ports = []*corev1.ContainerPort{{ContainerPort: 70000}}
	p.Spec.RestartPolicy = "x"
	asCreated(p)
	want := []apierrors.Cause{
		{Type: "FieldValueInvalid", Field: "metadata.name",
			Message: `Invalid value: "Up": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric ` +
				`characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used ` +
				`for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
		{Type: "FieldValueRequired", Field: "spec.containers[0].image", Message: "Required value"},
		{Type: "FieldValueInvalid", Field: "spec.containers[0].ports[0].containerPort",
			Message: "Invalid value: 70000: must be between 1 and 65535, inclusive"},
		{Type: "FieldValueNotSupported", Field: "spec.restartPolicy",
			Message: `Unsupported value: "x": supported values: "Always", "OnFailure", "Never"`},
	}
	got := pod.Validate(p)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	p := newPod()
	for range 3000 {
		p.Spec.Containers = append(p.Spec.Containers,
			&corev1.Container{Name: strings.Repeat("X", 5000) + fmt.Sprint(len(p.Spec.Containers))})
	}
	asCreated(p)
	causes := pod.Validate(p)
	if len(causes) != validation.MaxCauses+1 || causes[len(causes)-1].Type != "FieldValueTooMany" {
		t.Errorf("%d causes, the last %v", len(causes), causes[len(causes)-1])
	}
	for _, c := range causes {
		if len(c.Message) > 5000 {
			t.Fatalf("message of %d bytes", len(c.Message))
		}
	}
}

func TestQuantitiesThatTakeForeverAreRefused(t *testing.T) {
	for _, q := range []string{"1e-99999999", "1e999999999999", "1E-2147483648", strings.Repeat("9", 1<<20),
		"0." + strings.Repeat("0", 1<<20) + "1"} {
		p := newPod()
		p.Spec.Containers[0].Resources = &corev1.ResourceRequirements{Limits: kindtest.Amounts("cpu", q, "hugepages-"+q,
			"1")}
		asCreated(p)
		if len(pod.Validate(p)) == 0 {
			t.Errorf("%.20s was accepted", q)
		}
	}
}

// spec: OBJ-10
func TestValidateBinding(t *testing.T) {
	for _, c := range []struct {
		name string
		got  []apierrors.Cause
		want []string
	}{
		{"binding", pod.ValidateBinding(&corev1.Binding{Target: &corev1.ObjectReference{Kind: "Node", Name: "n"}}), nil},
		{"bad binding", pod.ValidateBinding(&corev1.Binding{Target: &corev1.ObjectReference{Kind: "Pod"}}),
			[]string{"Required target.name", "NotSupported target.kind"}},
	} {
		kindtest.Judge(t, c.name, c.got, c.want...)
	}
}
