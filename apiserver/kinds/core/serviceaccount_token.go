package core

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/kinds/core/nodekey"
	"monoplane.dev/apiserver/pki"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/tokens"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"

	authenticationv1 "monoplane.dev/api/authentication/v1"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

const (
	// defaultTokenSeconds is the life of a token for which none is asked.
	defaultTokenSeconds = 3600
	// minTokenSeconds and maxTokenSeconds bound what can be asked for. What is granted is bounded by maxTokenLife.
	minTokenSeconds = 600
	maxTokenSeconds = 1 << 32
	maxTokenLife    = pki.MaxTokenLife
	// podTokenSeconds is what pods ask for that mount the token of their account. Programs that read it but once are
	// many: it is valid for longer, and the audit log says who uses it when it should have been replaced.
	podTokenSeconds = 3607
)

// serviceAccounts is the ServiceAccounts service: the standard methods from a backend, and tokens.
type serviceAccounts struct {
	corev1rpc.ServiceAccountsBackend
	tokens *tokens.Authority
	store  *store.Store
	clock  clock.PassiveClock
}

// CreateToken serves ServiceAccounts.CreateToken.
func (s *serviceAccounts) CreateToken(
	ctx context.Context, req *corev1rpc.CreateTokenServiceAccountRequest,
) (*authenticationv1.TokenRequest, error) {
	if s.tokens == nil {
		return nil, apierrors.New(apierrors.ServiceUnavailable, "this server has no key to sign tokens with")
	}
	account, err := s.account(ctx, req)
	if err != nil {
		return nil, err
	}
	name := account.GetMetadata().GetName()
	asked := s.complete(account, req.GetObject())
	causes := append(validation.WriteOptions(object.WriteOptions{
		DryRun: req.GetDryRun(), FieldManager: req.GetFieldManager(), FieldValidation: req.GetFieldValidation(),
	}), ValidateTokenRequest(asked)...)
	if len(causes) > 0 {
		return nil, apierrors.NewInvalid(authenticationv1.TokenRequestKind, name, causes)
	}
	grant := tokens.Grant{Account: account, Audiences: asked.Spec.Audiences}
	if err := s.bind(ctx, &grant, asked.Spec.BoundObjectRef); err != nil {
		return nil, err
	}
	if err := s.mayHave(ctx, &grant, req.GetObject().GetSpec()); err != nil {
		return nil, err
	}
	const most = int64(maxTokenLife / time.Second)
	if seconds := asked.Spec.GetExpirationSeconds(); seconds > most {
		warning.Add(ctx, fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", seconds, most))
		*asked.Spec.ExpirationSeconds = most
	}
	grant.Life = time.Duration(asked.Spec.GetExpirationSeconds()) * time.Second
	if grant.Pod != nil && asked.Spec.GetExpirationSeconds() == podTokenSeconds && s.own(asked.Spec.Audiences) {
		grant.Life, grant.WarnAfter = maxTokenLife, grant.Life
	}
	token, expires, err := s.tokens.Issue(grant)
	if err != nil {
		return nil, err
	}
	asked.Status = &authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: value.Time(expires)}
	return asked, nil
}

// own says whether a token for the audiences is for nobody but the API server.
func (s *serviceAccounts) own(audiences []string) bool {
	return !slices.ContainsFunc(audiences, func(a string) bool { return !slices.Contains(s.tokens.Audiences(), a) })
}

// account returns the service account that is meant.
func (s *serviceAccounts) account(
	ctx context.Context, req *corev1rpc.CreateTokenServiceAccountRequest,
) (*corev1.ServiceAccount, error) {
	m := req.GetObject().GetMetadata()
	namespace, name := req.GetNamespace(), req.GetName()
	if namespace == "" {
		namespace = m.GetNamespace()
	}
	if name == "" {
		name = m.GetName()
	}
	f := &validation.Faults{}
	for f.Pass() {
		if m.GetName() != "" && m.GetName() != name {
			f.Invalid(f.Root("metadata").Child("name"), m.GetName(), "must match the service account name if specified")
		}
		if m.GetNamespace() != "" && m.GetNamespace() != namespace {
			f.Invalid(f.Root("metadata").Child("namespace"), m.GetNamespace(),
				"must match the service account namespace if specified")
		}
	}
	if causes := f.Causes(); len(causes) > 0 {
		return nil, apierrors.NewInvalid(authenticationv1.TokenRequestKind, name, causes)
	}
	account, err := get[*corev1.ServiceAccount](ctx, s.store, corev1.ServiceAccountKind, namespace, name)
	if err != nil {
		return nil, err
	}
	if have := account.GetMetadata().GetUid(); m.GetUid() != "" && m.GetUid() != have {
		return nil, apierrors.NewConflict(authenticationv1.TokenRequestKind, name,
			"the UID in the token request (%s) does not match the UID of the service account (%s)", m.GetUid(), have)
	}
	return account, nil
}

// complete returns a copy of what is asked, with what was left out.
func (s *serviceAccounts) complete(
	account *corev1.ServiceAccount, asked *authenticationv1.TokenRequest,
) *authenticationv1.TokenRequest {
	out := &authenticationv1.TokenRequest{
		Metadata: object.Clone(asked.GetMetadata()), Spec: object.Clone(asked.GetSpec()),
	}
	if out.Metadata == nil {
		out.Metadata = &metav1.ObjectMeta{}
	}
	m := account.GetMetadata()
	out.Metadata.Name, out.Metadata.Namespace, out.Metadata.Uid = m.GetName(), m.GetNamespace(), m.GetUid()
	out.Metadata.CreationTimestamp = value.Time(s.clock.Now())
	if out.Spec == nil {
		out.Spec = &authenticationv1.TokenRequestSpec{}
	}
	if len(out.Spec.Audiences) == 0 {
		out.Spec.Audiences = slices.Clone(s.tokens.Audiences())
	}
	if out.Spec.ExpirationSeconds == nil {
		seconds := int64(defaultTokenSeconds)
		out.Spec.ExpirationSeconds = &seconds
	}
	return out
}

// ValidateTokenRequest checks what is asked of a token, once it is complete.
func ValidateTokenRequest(r *authenticationv1.TokenRequest) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		p, seconds := f.Root("spec").Child("expirationSeconds"), r.GetSpec().GetExpirationSeconds()
		if seconds < minTokenSeconds {
			f.InvalidValue(p, seconds, "may not specify a duration less than 10 minutes")
		}
		if seconds > maxTokenSeconds {
			f.InvalidValue(p, seconds, "may not specify a duration larger than 2^32 seconds")
		}
	}
	return f.Causes()
}

// bind looks up what a token should be bound to.
func (s *serviceAccounts) bind(ctx context.Context, g *tokens.Grant, r *authenticationv1.BoundObjectReference) error {
	if r == nil {
		return nil
	}
	m := g.Account.GetMetadata()
	var kind *object.Kind
	var bound object.Object
	var err error
	switch {
	case r.GetApiVersion() == "v1" && r.GetKind() == "Pod":
		kind = corev1.PodKind
		g.Pod, err = get[*corev1.Pod](ctx, s.store, kind, m.GetNamespace(), r.GetName())
		if err == nil && g.Pod.GetSpec().GetServiceAccountName() != m.GetName() {
			err = apierrors.New(apierrors.BadRequest, "cannot bind token for serviceaccount %q to pod running with different "+
				"serviceaccount name.", m.GetName())
		}
		if err == nil {
			g.Node, err = s.nodeOf(ctx, g.Pod)
		}
		bound = g.Pod
	case r.GetApiVersion() == "v1" && r.GetKind() == "Node":
		kind = corev1.NodeKind
		g.Node, err = get[*corev1.Node](ctx, s.store, kind, "", r.GetName())
		bound = g.Node
	case r.GetApiVersion() == "v1" && r.GetKind() == "Secret":
		kind = corev1.SecretKind
		g.Secret, err = get[*corev1.Secret](ctx, s.store, kind, m.GetNamespace(), r.GetName())
		bound = g.Secret
	default:
		return apierrors.New(apierrors.BadRequest, "cannot bind token to object of type %s, Kind=%s",
			r.GetApiVersion(), r.GetKind())
	}
	if err != nil {
		return err
	}
	if have := bound.GetMetadata().GetUid(); r.GetUID() != "" && r.GetUID() != have {
		return apierrors.NewConflict(kind, r.GetName(), "the UID in the bound object reference (%s) does not match the UID "+
			"in record. The object might have been deleted and then recreated", r.GetUID())
	}
	return nil
}

// nodeOf returns the node of a pod, nil for none. Of a node that is not there the name is known.
func (s *serviceAccounts) nodeOf(ctx context.Context, p *corev1.Pod) (*corev1.Node, error) {
	name := p.GetSpec().GetNodeName()
	if name == "" {
		return nil, nil
	}
	node, err := get[*corev1.Node](ctx, s.store, corev1.NodeKind, "", name)
	if apierrors.Is(err, apierrors.NotFound) {
		return &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name}}, nil
	}
	return node, err
}

// mayHave refuses an agent a token that is not for a pod of its own node, bound to that pod, and for somebody for whom
// the pod has a token. Others have been judged already.
func (s *serviceAccounts) mayHave(
	ctx context.Context, g *tokens.Grant, asked *authenticationv1.TokenRequestSpec,
) error {
	id := auth.From(ctx)
	if id.Class != auth.Node {
		return nil
	}
	deny := func(format string, args ...any) error {
		return apierrors.NewForbidden(corev1.ServiceAccountKind, g.Account.GetMetadata().GetName(), format, args...)
	}
	if g.Pod == nil {
		return deny("node requested token not bound to a pod")
	}
	if asked.GetBoundObjectRef().GetUID() == "" {
		return deny("node requested token with a pod binding without a uid")
	}
	if g.Pod.GetSpec().GetNodeName() != id.Node {
		return deny("node requested token bound to a pod scheduled on a different node")
	}
	if key := nodekey.Of(g.Pod.GetMetadata()); key != "" && key != id.Key {
		return deny("node requested token bound to a pod of another machine of its name")
	}
	audiences := asked.GetAudiences()
	if len(audiences) == 0 {
		audiences = []string{""}
	}
	for _, a := range audiences {
		if !projects(g.Pod, a) {
			return deny("audience %q not found in pod spec volume, system:node:%s is not authorized to request tokens "+
				"for this audience", a, id.Node)
		}
	}
	return nil
}

// projects says whether a volume of the pod has a token for the audience; an empty one is the API server.
func projects(p *corev1.Pod, audience string) bool {
	return slices.ContainsFunc(p.GetSpec().GetVolumes(), func(v *corev1.Volume) bool {
		return slices.ContainsFunc(v.GetVolumeSource().GetProjected().GetSources(), func(s *corev1.VolumeProjection) bool {
			return s.GetServiceAccountToken() != nil && s.GetServiceAccountToken().GetAudience() == audience
		})
	})
}

// get returns an object as it is now.
func get[T object.Object](
	ctx context.Context, s *store.Store, kind *object.Kind, namespace, name string,
) (found T, err error) {
	o, err := s.Get(ctx, store.Key{Kind: kind, Namespace: namespace, Name: name}, "")
	if err != nil {
		return found, err
	}
	found, ok := o.(T)
	if !ok {
		return found, fmt.Errorf("the store has a %T for a %s", o, kind.Kind)
	}
	return found, nil
}
