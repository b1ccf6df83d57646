package oracle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	psadmission "k8s.io/pod-security-admission/admission"
	psconfig "k8s.io/pod-security-admission/admission/api"
	psapi "k8s.io/pod-security-admission/api"
	psmetrics "k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"

	oa "monoplane.dev/api/apps/v1"
	ob "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/admission/security"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/object"
)

// securityNamespaces has one namespace, and its pods, for Kubernetes' admission.
type securityNamespaces struct {
	namespace *v1.Namespace
	pods      []*v1.Pod
}

func (s *securityNamespaces) GetNamespace(context.Context, string) (*v1.Namespace, error) {
	return s.namespace, nil
}

func (s *securityNamespaces) ListPods(context.Context, string) ([]*v1.Pod, error) {
	return slices.Clone(s.pods), nil
}

// noMetrics records nothing.
type noMetrics struct{}

func (noMetrics) RecordEvaluation(psmetrics.Decision, psapi.LevelVersion, psmetrics.Mode, psapi.Attributes) {
}
func (noMetrics) RecordExemption(psapi.Attributes)   {}
func (noMetrics) RecordError(bool, psapi.Attributes) {}

// securityLabels are those of a namespace, mostly ones that mean something.
func securityLabels(r *rand.Rand) map[string]string {
	set := map[string]string{"other": "label"}
	for _, mode := range []string{"enforce", "audit", "warn"} {
		if r.IntN(3) > 0 {
			set["pod-security.kubernetes.io/"+mode] = mostly(r, []string{
				pick(r, []string{"privileged", "baseline", "restricted"}), "", "Baseline",
			})
		}
		if r.IntN(3) == 0 {
			set["pod-security.kubernetes.io/"+mode+"-version"] = mostly(r, []string{
				pick(r, []string{"latest", "v1.0", "v1.18", "v1.25", "v1.32", "v1.99"}), "1.2", "",
			})
		}
	}
	return set
}

// securePod is a pod that does some of what the standards forbid, and some of what they ask for. It has not the image
// of which Kubernetes knows nothing.
func securePod(r *rand.Rand) *v1.Pod {
	p := minimal()
	c := &p.Spec.Containers[0]
	c.Image = "image"
	if r.IntN(2) == 0 { // all that restricted wants
		p.Spec.SecurityContext = &v1.PodSecurityContext{
			RunAsNonRoot: ptr(true), SeccompProfile: &v1.SeccompProfile{Type: "RuntimeDefault"},
		}
		c.SecurityContext = &v1.SecurityContext{
			AllowPrivilegeEscalation: ptr(false), Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
		}
	}
	for range r.IntN(3) {
		if c.SecurityContext == nil {
			c.SecurityContext = &v1.SecurityContext{}
		}
		if p.Spec.SecurityContext == nil {
			p.Spec.SecurityContext = &v1.PodSecurityContext{}
		}
		switch r.IntN(12) {
		case 0:
			c.SecurityContext.Privileged = ptr(true)
		case 1:
			p.Spec.HostNetwork = true
		case 2:
			c.Ports = []v1.ContainerPort{{HostPort: 80, ContainerPort: 80}}
		case 3:
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
				HostPath: &v1.HostPathVolumeSource{Path: "/"}}}}
		case 4:
			c.SecurityContext.Capabilities = &v1.Capabilities{Add: []v1.Capability{
				pick(r, []v1.Capability{"NET_BIND_SERVICE", "SYS_ADMIN", "CHOWN"})}}
		case 5:
			p.Spec.SecurityContext.Sysctls = []v1.Sysctl{{Name: pick(r, []string{
				"kernel.shm_rmid_forced", "net.ipv4.tcp_keepalive_time", "kernel.msgmax"}), Value: "1"}}
		case 6:
			c.SecurityContext.ProcMount = ptr(v1.UnmaskedProcMount)
		case 7:
			p.Spec.SecurityContext.SeccompProfile = &v1.SeccompProfile{Type: "Unconfined"}
		case 8:
			p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/c": pick(r, []string{
				"unconfined", "runtime/default", "localhost/a"})}
		case 9:
			c.SecurityContext.RunAsUser = ptr(int64(r.IntN(2)))
		case 10:
			p.Spec.InitContainers = []v1.Container{{Name: "i", Image: "image"}}
		case 11:
			p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
				Name: "e", Image: "image", SecurityContext: &v1.SecurityContext{Privileged: ptr(r.IntN(2) == 0)}}}}
		}
	}
	p.Spec.RuntimeClassName = pick(r, []*string{nil, nil, nil, ptr("vm"), ptr("")})
	return p
}

// changedPod is a pod after an update, most of which concern nobody.
func changedPod(r *rand.Rand, p *v1.Pod) *v1.Pod {
	next := p.DeepCopy()
	switch r.IntN(7) {
	case 0:
		next.Spec.Containers[0].Image = "other"
	case 1:
		next.Labels = map[string]string{"a": "b"}
	case 2:
		next.Spec.ActiveDeadlineSeconds = ptr(int64(1))
	case 3:
		next.Spec.EphemeralContainers = append(next.Spec.EphemeralContainers, v1.EphemeralContainer{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "x", Image: "image"}})
	case 4:
		for i := range next.Spec.EphemeralContainers {
			next.Spec.EphemeralContainers[i].Image = "other"
		}
	case 5:
		for i := range next.Spec.InitContainers {
			next.Spec.InitContainers[i].Image = "other"
		}
	}
	return next
}

// securityWorkload is an object of some kind whose pods are such, with the name of its resource.
func securityWorkload(r *rand.Rand, p *v1.Pod) (string, runtime.Object, upstream, object.Object) {
	t := v1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
	m := meta("w")
	switch r.IntN(9) {
	case 0:
		o := &appsv1.Deployment{ObjectMeta: m, Spec: appsv1.DeploymentSpec{Template: t}}
		return "deployments", o, o, &oa.Deployment{}
	case 1:
		o := &appsv1.ReplicaSet{ObjectMeta: m, Spec: appsv1.ReplicaSetSpec{Template: t}}
		return "replicasets", o, o, &oa.ReplicaSet{}
	case 2:
		o := &appsv1.StatefulSet{ObjectMeta: m, Spec: appsv1.StatefulSetSpec{Template: t}}
		return "statefulsets", o, o, &oa.StatefulSet{}
	case 3:
		o := &appsv1.DaemonSet{ObjectMeta: m, Spec: appsv1.DaemonSetSpec{Template: t}}
		return "daemonsets", o, o, &oa.DaemonSet{}
	case 4:
		o := &batchv1.Job{ObjectMeta: m, Spec: batchv1.JobSpec{Template: t}}
		return "jobs", o, o, &ob.Job{}
	case 5:
		o := &batchv1.CronJob{ObjectMeta: m, Spec: batchv1.CronJobSpec{
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: t}}}}
		return "cronjobs", o, o, &ob.CronJob{}
	case 6:
		o := &v1.PodTemplate{ObjectMeta: m, Template: t}
		return "podtemplates", o, o, &corev1.PodTemplate{}
	case 7:
		o := &v1.ReplicationController{ObjectMeta: m, Spec: v1.ReplicationControllerSpec{Template: &t}}
		return "replicationcontrollers", o, o, &corev1.ReplicationController{}
	default:
		o := &v1.ReplicationController{ObjectMeta: m}
		return "replicationcontrollers", o, o, &corev1.ReplicationController{}
	}
}

// securityGroups are those of the resources above that are not of the core group.
var securityGroups = map[string]string{
	"deployments": "apps", "replicasets": "apps", "statefulsets": "apps", "daemonsets": "apps", "jobs": "batch",
	"cronjobs": "batch",
}

// judgedSecurity is what came of a request.
type judgedSecurity struct {
	refused  string
	warnings string
	audit    string
}

func asOurs(t *testing.T, from upstream, to object.Object) object.Object {
	t.Helper()
	return mustOurs[proto.Message](t, from, to).(object.Object)
}

// What the standards of a namespace refuse, warn of and note is what Kubernetes' admission does: of pods and of the
// templates of each kind of workload, created and changed, with the labels, defaults and exemptions there are.
//
// spec: OBJ-3
func TestPodSecurityDecidesAlike(t *testing.T) {
	r := random(t)
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		exempt := psconfig.PodSecurityExemptions{Usernames: []string{"robot"}, RuntimeClasses: []string{"vm"}}
		if r.IntN(8) == 0 {
			exempt.Namespaces = []string{"default"}
		}
		// All three are said: without a word about warn, a default that is enforced here is warned of too.
		defaults := map[string]string{}
		for _, mode := range []string{"enforce", "audit", "warn"} {
			defaults[mode] = mostly(r, []string{"privileged", "baseline", "restricted"})
		}
		there := &securityNamespaces{namespace: &v1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: securityLabels(r)}}}
		for j := range r.IntN(4) {
			p := securePod(r)
			p.Name = fmt.Sprint("p", j)
			if r.IntN(2) == 0 {
				p.OwnerReferences = []metav1.OwnerReference{{
					APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "u", Controller: ptr(true)}}
			}
			there.pods = append(there.pods, p)
		}
		theirs := &psadmission.Admission{
			Configuration: &psconfig.PodSecurityConfiguration{
				Defaults: psconfig.PodSecurityDefaults{
					Enforce: defaults["enforce"], EnforceVersion: "latest", Audit: defaults["audit"], AuditVersion: "latest",
					Warn: defaults["warn"], WarnVersion: "latest",
				},
				Exemptions: exempt,
			},
			Evaluator: checks, Metrics: noMetrics{}, NamespaceGetter: there, PodLister: there,
		}
		if err := theirs.CompleteConfiguration(); err != nil {
			t.Fatal(err)
		}
		if err := theirs.ValidateConfiguration(); err != nil {
			t.Fatal(err)
		}
		var mine judgedSecurity
		standards, err := security.New(security.Config{
			Defaults: defaults, Namespaces: exempt.Namespaces, Users: exempt.Usernames, RuntimeClasses: exempt.RuntimeClasses,
			Pods: func(context.Context, string) ([]*corev1.Pod, error) {
				var list []*corev1.Pod
				for _, p := range there.pods {
					list = append(list, ourPod(t, p))
				}
				return list, nil
			},
			Note: func(_ context.Context, _ object.Object, violation string) { mine.audit = violation },
		})
		if err != nil {
			t.Fatal(err)
		}
		standards.Changed(nil, mustOurs(t, there.namespace, &corev1.Namespace{}))

		user := pick(r, []string{"ada", "ada", "ada", "robot"})
		attributes := &psapi.AttributesRecord{Namespace: "default", Operation: admissionv1.Create, Username: user}
		w := registry.Write{}
		resource := "pods"
		switch r.IntN(4) {
		case 0, 1:
			p := securePod(r)
			attributes.Object, w.Next = p, ourPod(t, p)
			if r.IntN(2) == 0 {
				next := changedPod(r, p)
				attributes.OldObject, w.Live = p, w.Next
				attributes.Object, w.Next = next, ourPod(t, next)
				w.Subresource = pick(r, []string{"", "", "ephemeralcontainers", "resize", "status"})
			}
		case 2:
			var o upstream
			var into object.Object
			resource, attributes.Object, o, into = securityWorkload(r, securePod(r))
			w.Next = asOurs(t, o, into)
			if r.IntN(2) == 0 {
				attributes.OldObject, w.Live = attributes.Object, w.Next
				w.Subresource = pick(r, []string{"", "", "status", "scale"})
			}
		case 3:
			resource = "namespaces"
			was, is := there.namespace, there.namespace.DeepCopy()
			is.Labels = securityLabels(r)
			attributes.Object, w.Next = is, mustOurs(t, is, &corev1.Namespace{})
			if r.IntN(4) > 0 {
				attributes.OldObject, w.Live = was, mustOurs(t, was, &corev1.Namespace{})
				w.Subresource = pick(r, []string{"", "", "", "status"})
			}
		}
		if w.Live != nil {
			attributes.Operation = admissionv1.Update
		}
		attributes.Name, attributes.Subresource = w.Next.GetMetadata().GetName(), w.Subresource
		attributes.Resource = schema.GroupVersionResource{Group: securityGroups[resource], Version: "v1", Resource: resource}
		attributes.Kind = schema.GroupVersionKind{
			Group: securityGroups[resource], Version: "v1", Kind: w.Next.ObjectKind().Kind}

		answer := theirs.Validate(t.Context(), attributes)
		want := judgedSecurity{
			warnings: strings.Join(answer.Warnings, "\n"), audit: answer.AuditAnnotations["audit-violations"],
		}
		if !answer.Allowed {
			want.refused = answer.Result.Message
		}
		ctx, warnings := warning.WithCollector(authn.WithUser(t.Context(), &authn.User{Name: user}))
		if err := standards.Judge(ctx, w); err != nil {
			mine.refused = apierrors.From(err).Status().GetMessage()
		}
		mine.warnings = strings.Join(warnings.Texts(), "\n")
		if mine != want {
			bad++
			t.Errorf("%s %s %s by %s, namespace %v, defaults %v, exempt %v\n%v\nKubernetes %+v\nMonoplane  %+v",
				attributes.Operation, resource, w.Subresource, user, there.namespace.Labels, defaults, exempt.Namespaces,
				attributes.Object, want, mine)
		}
		for name, text := range map[string]string{
			"refused": want.refused, "warned": want.warnings, "noted": want.audit,
		} {
			if text != "" {
				seen[resource+" "+name]++
			}
		}
	}
	if *count >= 1000 {
		for _, what := range []string{"pods refused", "pods warned", "pods noted", "deployments warned",
			"cronjobs noted", "namespaces refused", "namespaces warned"} {
			if seen[what] == 0 {
				t.Errorf("never: %s; only %v", what, seen)
			}
		}
	}
}
