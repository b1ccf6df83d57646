package oracle

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func ptr[T any](v T) *T { return &v }

func amounts(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "default"} }

func minimal() *v1.Pod {
	return &v1.Pod{ObjectMeta: meta("p"), Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "host"}}}}
}

// ofWindows is a valid pod for nodes of Windows, whose containers run on the host.
func ofWindows() *v1.Pod {
	p := minimal()
	options := func(user string) *v1.WindowsSecurityContextOptions {
		return &v1.WindowsSecurityContextOptions{HostProcess: ptr(true), RunAsUserName: &user,
			GMSACredentialSpecName: ptr("a.b"), GMSACredentialSpec: ptr("{}")}
	}
	p.Spec.OS, p.Spec.HostNetwork = &v1.PodOS{Name: "windows"}, true
	p.Spec.SecurityContext = &v1.PodSecurityContext{WindowsOptions: options("user")}
	p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "d", Image: "host",
		SecurityContext: &v1.SecurityContext{WindowsOptions: options(`NT AUTHORITY\SYSTEM`)}})
	return p
}

// rich is a valid pod that sets nearly every field that validation knows.
func rich() *v1.Pod {
	p := &v1.Pod{ObjectMeta: meta("rich")}
	p.Labels = map[string]string{"app": "a", "version": "1"}
	p.Annotations = map[string]string{"example.com/a": "b", "controller.kubernetes.io/pod-deletion-cost": "-5"}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "u",
		Controller: ptr(true)}}
	p.Finalizers = []string{"example.com/f"}
	s := &p.Spec
	s.Volumes = []v1.Volume{
		{Name: "empty", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "Memory",
			SizeLimit: ptr(resource.MustParse("1Mi"))}}},
		{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/var",
			Type: ptr(v1.HostPathDirectory)}}},
		{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s",
			Items: []v1.KeyToPath{{Key: "k", Path: "p/q", Mode: ptr(int32(0o400))}}}}},
		{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "c"}, DefaultMode: ptr(int32(0o644))}}},
		{Name: "down", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
			Items: []v1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
				{Path: "cpu", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "app", Resource: "limits.cpu",
					Divisor: resource.MustParse("1m")}},
			}}}},
		{Name: "projected", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{
				{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "s"},
					Items: []v1.KeyToPath{{Key: "a", Path: "a"}}}},
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "c"},
					Items: []v1.KeyToPath{{Key: "b", Path: "b"}}}},
				{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "n",
					FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", Audience: "a"}},
			}}}},
		{Name: "claim", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			ClaimName: "pvc"}}},
		{Name: "nfs", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "s", Path: "/p"}}},
		{Name: "csi", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d.example.com",
			NodePublishSecretRef: &v1.LocalObjectReference{Name: "s"}}}},
		{Name: "image", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "r:1"}}},
	}
	probe := func(h v1.ProbeHandler) *v1.Probe { return &v1.Probe{ProbeHandler: h, InitialDelaySeconds: 1} }
	s.Containers = []v1.Container{{
		Name: "app", Image: "r.example.com/a:1", Command: []string{"x"}, Args: []string{"y"}, WorkingDir: "/",
		Ports: []v1.ContainerPort{{Name: "http", ContainerPort: 80, HostPort: 8080},
			{ContainerPort: 53, Protocol: "UDP", HostIP: "1.2.3.4", HostPort: 53}},
		Env: []v1.EnvVar{
			{Name: "A", Value: "b"},
			{Name: "F", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}}},
			{Name: "R", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "requests.memory",
				Divisor: resource.MustParse("1Mi")}}},
			{Name: "C", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
				LocalObjectReference: v1.LocalObjectReference{Name: "c"}, Key: "k"}}},
			{Name: "S", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
				LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Key: "k"}}},
			{Name: "V", ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "empty", Path: "f", Key: "k"}}},
		},
		EnvFrom: []v1.EnvFromSource{
			{Prefix: "P_", ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "c"}}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}},
		},
		Resources: v1.ResourceRequirements{
			Limits:   amounts("cpu", "2", "memory", "1Gi", "example.com/gpu", "1", "hugepages-2Mi", "4Mi"),
			Requests: amounts("cpu", "500m", "ephemeral-storage", "1Gi"),
		},
		VolumeMounts: []v1.VolumeMount{
			{Name: "empty", MountPath: "/e", SubPath: "a/b"}, {Name: "host", MountPath: "/h",
				MountPropagation: ptr(v1.MountPropagationHostToContainer)},
			{Name: "config", MountPath: "/c", ReadOnly: true, RecursiveReadOnly: ptr(v1.RecursiveReadOnlyEnabled)},
			{Name: "secret", MountPath: "/s", SubPathExpr: "$(A)"},
		},
		VolumeDevices: []v1.VolumeDevice{{Name: "claim", DevicePath: "/dev/x"}},
		LivenessProbe: probe(v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromString("http"),
			HTTPHeaders: []v1.HTTPHeader{{Name: "X-A", Value: "b"}}}}),
		ReadinessProbe: probe(v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80)}}),
		StartupProbe:   probe(v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 80}}),
		Lifecycle: &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"x"}}},
			PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 5}}},
		SecurityContext: &v1.SecurityContext{
			RunAsUser: ptr(int64(1)), RunAsGroup: ptr(int64(1)),
			Capabilities:             &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN"}},
			SeccompProfile:           &v1.SeccompProfile{Type: "Localhost", LocalhostProfile: ptr("p.json")},
			ProcMount:                ptr(v1.DefaultProcMount),
			AppArmorProfile:          &v1.AppArmorProfile{Type: "Localhost", LocalhostProfile: ptr("p")},
			AllowPrivilegeEscalation: ptr(false),
		},
		ResizePolicy:  []v1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: "NotRequired"}},
		RestartPolicy: ptr(v1.ContainerRestartPolicyNever),
		RestartPolicyRules: []v1.ContainerRestartRule{{Action: "Restart",
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: "In", Values: []int32{1}}}},
	}, {Name: "second", Image: "b"}}
	s.InitContainers = []v1.Container{
		{Name: "init", Image: "i", Resources: v1.ResourceRequirements{Requests: amounts("cpu", "1500m")}},
		{
			Name: "side", Image: "s@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
			RestartPolicy: ptr(v1.ContainerRestartPolicyAlways),
			StartupProbe:  probe(v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}),
			Ports:         []v1.ContainerPort{{ContainerPort: 9, HostPort: 9}},
		},
	}
	s.Resources = &v1.ResourceRequirements{Limits: amounts("cpu", "8", "memory", "4Gi"),
		Requests: amounts("memory", "2Gi")}
	s.TerminationGracePeriodSeconds, s.ActiveDeadlineSeconds = ptr(int64(20)), ptr(int64(100))
	s.NodeSelector = map[string]string{"disk": "ssd"}
	s.SecurityContext = &v1.PodSecurityContext{
		RunAsUser: ptr(int64(1)), FSGroup: ptr(int64(2)), SupplementalGroups: []int64{3},
		FSGroupChangePolicy:      ptr(v1.FSGroupChangeAlways),
		Sysctls:                  []v1.Sysctl{{Name: "net.ipv4.tcp_syncookies", Value: "1"}},
		SeccompProfile:           &v1.SeccompProfile{Type: "RuntimeDefault"},
		SupplementalGroupsPolicy: ptr(v1.SupplementalGroupsPolicyStrict),
		SELinuxChangePolicy:      ptr(v1.SELinuxChangePolicyRecursive),
	}
	s.ImagePullSecrets = []v1.LocalObjectReference{{Name: "x"}}
	s.Hostname, s.Subdomain = "h", "s"
	term := v1.PodAffinityTerm{
		TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"a": "b"}},
		Namespaces: []string{"n"}, MatchLabelKeys: []string{"app"}, MismatchLabelKeys: []string{"version"},
	}
	expressions := []metav1.LabelSelectorRequirement{{Key: "k", Operator: "In", Values: []string{"v"}},
		{Key: "e", Operator: "Exists"}}
	s.Affinity = &v1.Affinity{
		NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: "z", Operator: "In", Values: []string{"a"}},
					{Key: "n", Operator: "Gt", Values: []string{"5"}}},
				MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"n1"}}},
			}}},
			PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 5,
				Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "a", Operator: "Exists"}}}}},
		},
		PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}},
		PodAntiAffinity: &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{
			{Weight: 1, PodAffinityTerm: *term.DeepCopy()}}},
	}
	s.Tolerations = []v1.Toleration{{Key: "k", Operator: "Equal", Value: "v", Effect: "NoSchedule"},
		{Key: "x", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: ptr(int64(5))}}
	s.HostAliases = []v1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"a.b"}}}
	s.DNSPolicy = "None"
	s.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"8.8.8.8"}, Searches: []string{"a.b.", "_x.y", "."},
		Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: ptr("2")}}}
	s.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/g"}}
	s.RuntimeClassName = ptr("rc")
	s.Overhead = amounts("cpu", "10m")
	s.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
		{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: "DoNotSchedule", MinDomains: ptr(int32(2)),
			LabelSelector: &metav1.LabelSelector{MatchExpressions: expressions}, MatchLabelKeys: []string{"app"}},
		{MaxSkew: 2, TopologyKey: "host", WhenUnsatisfiable: "ScheduleAnyway",
			NodeAffinityPolicy: ptr(v1.NodeInclusionPolicyHonor), NodeTaintsPolicy: ptr(v1.NodeInclusionPolicyIgnore),
			LabelSelector: &metav1.LabelSelector{}},
	}
	s.OS = &v1.PodOS{Name: "linux"}
	s.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/gate"}}
	s.PriorityClassName = "pc"
	return p
}
