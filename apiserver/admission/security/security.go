// Package security holds pods to the Pod Security Standards that labels of their namespace name:
// pod-security.kubernetes.io/enforce, audit and warn, each with a level (privileged, baseline, restricted) and a
// version.
//
// What violates the level that is enforced is refused, what violates the one of warn is warned of, also in the
// templates of workloads, and what violates the one of audit is noted: in the audit of the request, where it is
// recorded, with annotations pod-security.kubernetes.io/enforce-policy, audit-violations and exempt. Whoever changes
// what a namespace enforces is warned of the pods that it has and that violate it.
//
// The checks are those of k8s.io/pod-security-admission, so that they are those of Kubernetes to the word, and one of
// Monoplane's: image "host" is more than baseline allows. It needs a right of its own besides, whatever the level is
// and whoever is exempt. Objects are turned into its types by their protobuf form, and only where a namespace asks for
// more than privileged: others cost a look into a map.
package security

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	k8score "k8s.io/api/core/v1" //nolint:depguard // the checks take no others, and are not written twice
	k8smeta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Config is what an operator says about all namespaces.
type Config struct {
	// Defaults are labels that count where a namespace has none of that name, without their prefix: "enforce", "warn"
	// and so on. None is privileged.
	Defaults map[string]string
	// Namespaces, Users and RuntimeClasses are judged by nothing.
	Namespaces, Users, RuntimeClasses []string
	// Pods lists the pods of a namespace. Required.
	Pods func(ctx context.Context, namespace string) ([]*corev1.Pod, error)
	// MayUseHost refuses callers who have no right to image "host" in a namespace; nil lets everybody have it.
	MayUseHost func(ctx context.Context, namespace string) error
	// Note takes what violates the level of audit, beside the audit of the request; nil discards.
	Note func(ctx context.Context, o object.Object, violation string)
}

// prefix begins the names of the labels.
const prefix = "pod-security.kubernetes.io/"

// Standards are those of all namespaces.
type Standards struct {
	cfg      Config
	defaults api.Policy
	checks   func() policy.Evaluator
	// own has the policies of namespaces that have labels of their own. Whoever changes it makes a new map.
	own atomic.Pointer[map[string]api.Policy]
}

// New returns the standards of namespaces that Changed has told of.
func New(cfg Config) (*Standards, error) {
	labels := make(map[string]string, len(cfg.Defaults))
	for name, value := range cfg.Defaults {
		labels[prefix+name] = value
	}
	defaults, errs := api.PolicyToEvaluate(labels, privileged())
	if len(errs) > 0 {
		return nil, fmt.Errorf("standards of pod security: %w", errs.ToAggregate())
	}
	s := &Standards{cfg: cfg, defaults: defaults}
	s.checks = sync.OnceValue(func() policy.Evaluator {
		checks, err := policy.NewEvaluator(append(policy.DefaultChecks(), forbidHostImage()), nil)
		if err != nil {
			panic("security: the checks of the library: " + err.Error()) // it tests that
		}
		return checks
	})
	return s, nil
}

func privileged() api.Policy {
	lowest := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
	return api.Policy{Enforce: lowest, Audit: lowest, Warn: lowest}
}

// Changed is told of changes of namespaces, one at a time.
func (s *Standards) Changed(was, is object.Object) {
	o := is
	if o == nil {
		o = was
	}
	name := o.GetMetadata().GetName()
	own := s.own.Load()
	var next map[string]api.Policy
	p, labelled := api.Policy{}, false
	if is != nil {
		p, labelled = s.of(is.GetMetadata().GetLabels())
	}
	if own != nil {
		if before, had := (*own)[name]; had == labelled && before == p {
			return
		}
		next = maps.Clone(*own)
	} else if !labelled {
		return
	}
	if next == nil {
		next = map[string]api.Policy{}
	}
	if next[name] = p; !labelled {
		delete(next, name)
	}
	s.own.Store(&next)
}

// labels are those that make a policy.
var labels = []string{
	api.EnforceLevelLabel, api.EnforceVersionLabel, api.AuditLevelLabel, api.AuditVersionLabel,
	api.WarnLevelLabel, api.WarnVersionLabel,
}

// of returns the policy of a namespace with these labels, and whether it has one of its own. Labels that cannot be
// read, which only a namespace can have that was made elsewhere, stand for the strictest level.
func (s *Standards) of(set map[string]string) (api.Policy, bool) {
	if !slices.ContainsFunc(labels, func(name string) bool { _, ok := set[name]; return ok }) {
		return s.defaults, false
	}
	p, _ := api.PolicyToEvaluate(set, s.defaults)
	return p, true
}

func (s *Standards) policyOf(namespace string) api.Policy {
	if own := s.own.Load(); own != nil {
		if p, ok := (*own)[namespace]; ok {
			return p
		}
	}
	return s.defaults
}

// Judge refuses a pod that violates what its namespace enforces, and warns of what violates what it warns of.
func (s *Standards) Judge(ctx context.Context, w registry.Write) error {
	if err := s.mayUseHost(ctx, w); err != nil {
		return err
	}
	switch o := w.Next.(type) {
	case *corev1.Namespace:
		return s.judgeNamespace(ctx, w, o)
	case *corev1.Pod:
		if w.Subresource == "status" {
			return nil
		}
		if s.exempt(ctx, o.GetMetadata().GetNamespace()) {
			return nil
		}
		p := s.policyOf(o.GetMetadata().GetNamespace())
		if p.FullyPrivileged() {
			note(ctx, api.EnforcedPolicyAnnotationKey, p.Enforce.String())
			return nil
		}
		if live, _ := w.Live.(*corev1.Pod); live != nil && !significant(o, live) {
			return nil
		}
		return s.evaluate(ctx, p, o, o.GetMetadata(), o.GetSpec())
	}
	if w.Subresource != "" {
		return nil
	}
	m, spec := templateOf(w.Next)
	if spec == nil {
		return nil
	}
	if s.exempt(ctx, w.Next.GetMetadata().GetNamespace()) {
		return nil
	}
	p := s.policyOf(w.Next.GetMetadata().GetNamespace())
	if p.Enforce = (api.LevelVersion{Level: api.LevelPrivileged}); p.FullyPrivileged() {
		return nil
	}
	return s.evaluate(ctx, p, w.Next, m, spec)
}

// evaluate judges a pod, or the template of an object, by a policy.
func (s *Standards) evaluate(
	ctx context.Context, p api.Policy, o object.Object, m *metav1.ObjectMeta, spec *corev1.PodSpec,
) error {
	if spec.GetRuntimeClassName() != "" && slices.Contains(s.cfg.RuntimeClasses, spec.GetRuntimeClassName()) {
		note(ctx, api.ExemptionReasonAnnotationKey, "runtimeClass")
		return nil
	}
	pod, err := converted(m, spec)
	if err != nil {
		return err
	}
	results := map[api.LevelVersion]policy.AggregateCheckResult{}
	violation := func(level api.LevelVersion, word string) string {
		r, ok := results[level]
		if !ok {
			r = policy.AggregateCheckResults(s.checks().EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
			results[level] = r
		}
		if r.Allowed {
			return ""
		}
		return fmt.Sprintf("%s PodSecurity %q: %s", word, level.String(), r.ForbiddenDetail())
	}
	if _, ok := o.(*corev1.Pod); ok {
		note(ctx, api.EnforcedPolicyAnnotationKey, p.Enforce.String())
	}
	if text := violation(p.Audit, "would violate"); text != "" {
		note(ctx, api.AuditViolationsAnnotationKey, text)
		if s.cfg.Note != nil {
			s.cfg.Note(ctx, o, text)
		}
	}
	if text := violation(p.Enforce, "violates"); text != "" {
		return apierrors.NewForbidden(o.ObjectKind(), o.GetMetadata().GetName(), "%s", text)
	}
	if text := violation(p.Warn, "would violate"); text != "" {
		warning.Add(ctx, text)
	}
	return nil
}

// exempt says whether nothing judges what the caller writes in a namespace.
func (s *Standards) exempt(ctx context.Context, namespace string) bool {
	switch {
	case slices.Contains(s.cfg.Namespaces, namespace):
		note(ctx, api.ExemptionReasonAnnotationKey, "namespace")
	case slices.Contains(s.cfg.Users, auth.From(ctx).Name):
		note(ctx, api.ExemptionReasonAnnotationKey, "user")
	default:
		return false
	}
	return true
}

// note writes into the audit of the request what was decided, and why.
func note(ctx context.Context, key, value string) { audit.From(ctx).Annotate(prefix+key, value) }

// converted turns a pod into the type of the library.
func converted(m *metav1.ObjectMeta, spec *corev1.PodSpec) (*k8score.Pod, error) {
	meta, err := proto.Marshal(&metav1.ObjectMeta{Name: m.GetName(), Annotations: m.GetAnnotations()})
	if err != nil {
		return nil, fmt.Errorf("encode the metadata of a pod for the checks of its security: %w", err)
	}
	body, err := proto.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode a pod for the checks of its security: %w", err)
	}
	p := &k8score.Pod{ObjectMeta: k8smeta.ObjectMeta{}}
	if err := p.ObjectMeta.Unmarshal(meta); err != nil {
		return nil, fmt.Errorf("decode the metadata of a pod for the checks of its security: %w", err)
	}
	if err := p.Spec.Unmarshal(body); err != nil {
		return nil, fmt.Errorf("decode a pod for the checks of its security: %w", err)
	}
	return p, nil
}

// significant says whether an update changes what is judged: it has another image, or one more container.
func significant(next, live *corev1.Pod) bool {
	a, b := next.GetSpec(), live.GetSpec()
	same := func(x, y *corev1.Container) bool { return x.GetImage() == y.GetImage() }
	if !slices.EqualFunc(a.GetContainers(), b.GetContainers(), same) ||
		!slices.EqualFunc(a.GetInitContainers(), b.GetInitContainers(), same) {
		return true
	}
	return slices.ContainsFunc(a.GetEphemeralContainers(), func(c *corev1.EphemeralContainer) bool {
		common := c.GetEphemeralContainerCommon()
		return !slices.ContainsFunc(b.GetEphemeralContainers(), func(was *corev1.EphemeralContainer) bool {
			before := was.GetEphemeralContainerCommon()
			return before.GetName() == common.GetName() && before.GetImage() == common.GetImage()
		})
	})
}
