// Package authorization describes the kinds of the group authorization.k8s.io: questions about what somebody may do,
// of which nothing is stored. They are answered by the authorizer that judges requests. What depends on the object
// itself, such as whether it belongs to an agent's node, is known only when a request is made.
package authorization

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"

	authorizationv1 "monoplane.dev/api/authorization/v1"
	authorizationv1rpc "monoplane.dev/api/authorization/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// reviewer answers questions.
type reviewer struct {
	rights     *auth.Authorizer
	namespaced []*object.Kind
}

func reviewerOf(c define.Config) reviewer {
	return reviewer{rights: c.Rights, namespaced: c.Namespaced}
}

// SubjectAccessReview describes a question of which nothing is stored: whether somebody may do something.
func SubjectAccessReview(c define.Config) define.Definition {
	return define.Definition{Server: func(object.Backend, func(*object.Kind) object.Backend) any {
		return &subjectAccessReviews{reviewer: reviewerOf(c)}
	}}
}

// LocalSubjectAccessReview describes a question of which nothing is stored: whether somebody may do something in a
// namespace.
func LocalSubjectAccessReview(c define.Config) define.Definition {
	return define.Definition{Server: func(object.Backend, func(*object.Kind) object.Backend) any {
		return &localSubjectAccessReviews{reviewer: reviewerOf(c)}
	}}
}

// SelfSubjectAccessReview describes a question of which nothing is stored: whether the client may do something.
func SelfSubjectAccessReview(c define.Config) define.Definition {
	return define.Definition{Server: func(object.Backend, func(*object.Kind) object.Backend) any {
		return &selfSubjectAccessReviews{reviewer: reviewerOf(c)}
	}}
}

type subjectAccessReviews struct {
	authorizationv1rpc.UnimplementedSubjectAccessReviewsServer
	reviewer
}

// Create serves SubjectAccessReviews.Create.
func (s *subjectAccessReviews) Create(
	_ context.Context, req *authorizationv1rpc.CreateSubjectAccessReviewRequest,
) (*authorizationv1.SubjectAccessReview, error) {
	review := req.GetObject()
	f, spec := &validation.Faults{}, review.GetSpec()
	for f.Pass() {
		checkMeta(f, review.GetMetadata(), "must be empty")
		checkAttributes(f, spec)
		checkSubject(f, spec)
	}
	if err := invalid(authorizationv1.SubjectAccessReviewKind, f, req); err != nil {
		return nil, err
	}
	return &authorizationv1.SubjectAccessReview{Metadata: review.GetMetadata(), Spec: spec,
		Status: s.answer(subject(spec), spec)}, nil
}

type localSubjectAccessReviews struct {
	authorizationv1rpc.UnimplementedLocalSubjectAccessReviewsServer
	reviewer
}

// Create serves LocalSubjectAccessReviews.Create.
func (s *localSubjectAccessReviews) Create(
	_ context.Context, req *authorizationv1rpc.CreateLocalSubjectAccessReviewRequest,
) (*authorizationv1.LocalSubjectAccessReview, error) {
	review := object.Clone(req.GetObject())
	f, spec := &validation.Faults{}, review.GetSpec()
	if review.Metadata == nil {
		review.Metadata = &metav1.ObjectMeta{}
	}
	if req.GetNamespace() != "" {
		review.Metadata.Namespace = req.GetNamespace()
	}
	namespace := review.Metadata.Namespace
	for f.Pass() {
		m := object.Clone(review).GetMetadata()
		m.Namespace = ""
		checkMeta(f, m, "must be empty except for namespace")
		checkAttributes(f, spec)
		checkSubject(f, spec)
		p := f.Root("spec")
		if r := spec.GetResourceAttributes(); r != nil && r.GetNamespace() != namespace {
			f.Invalid(p.Child("resourceAttributes").Child("namespace"), r.GetNamespace(), "must match metadata.namespace")
		}
		if spec.GetNonResourceAttributes() != nil {
			f.Invalid(p.Child("nonResourceAttributes"), spec.GetNonResourceAttributes().GetPath(),
				"disallowed on this kind of request")
		}
	}
	if err := invalid(authorizationv1.LocalSubjectAccessReviewKind, f, req); err != nil {
		return nil, err
	}
	return &authorizationv1.LocalSubjectAccessReview{Metadata: review.Metadata, Spec: spec,
		Status: s.answer(subject(spec), spec)}, nil
}

type selfSubjectAccessReviews struct {
	authorizationv1rpc.UnimplementedSelfSubjectAccessReviewsServer
	reviewer
}

// Create serves SelfSubjectAccessReviews.Create.
func (s *selfSubjectAccessReviews) Create(
	ctx context.Context, req *authorizationv1rpc.CreateSelfSubjectAccessReviewRequest,
) (*authorizationv1.SelfSubjectAccessReview, error) {
	review := req.GetObject()
	f, spec := &validation.Faults{}, review.GetSpec()
	for f.Pass() {
		checkMeta(f, review.GetMetadata(), "must be empty")
		checkAttributes(f, spec)
	}
	if err := invalid(authorizationv1.SelfSubjectAccessReviewKind, f, req); err != nil {
		return nil, err
	}
	return &authorizationv1.SelfSubjectAccessReview{Metadata: review.GetMetadata(), Spec: spec,
		Status: s.answer(authn.UserFrom(ctx), spec)}, nil
}

// question is what is to be done.
type question interface {
	GetResourceAttributes() *authorizationv1.ResourceAttributes
	GetNonResourceAttributes() *authorizationv1.NonResourceAttributes
}

// subject is who is asked about.
func subject(spec *authorizationv1.SubjectAccessReviewSpec) *authn.User {
	return &authn.User{Name: spec.GetUser(), Groups: spec.GetGroups()}
}

// answer says whether u may do what is asked.
func (r reviewer) answer(u *authn.User, q question) *authorizationv1.SubjectAccessReviewStatus {
	allowed, reason := r.rights.Decide(u, r.attributes(q))
	return &authorizationv1.SubjectAccessReviewStatus{Allowed: allowed, Reason: reason}
}

func (r reviewer) attributes(q question) auth.Attributes {
	if p := q.GetNonResourceAttributes(); p != nil {
		return auth.Attributes{Verb: p.GetVerb(), Path: p.GetPath()}
	}
	a := q.GetResourceAttributes()
	return auth.Attributes{
		Verb: a.GetVerb(), Group: a.GetGroup(), Resource: a.GetResource(), Subresource: a.GetSubresource(),
		Namespace: a.GetNamespace(), Name: a.GetName(), FieldSelector: fieldSelector(a.GetFieldSelector()),
		Namespaced: slices.ContainsFunc(r.namespaced, func(k *object.Kind) bool {
			return k.Group == a.GetGroup() && k.Plural == a.GetResource()
		}),
	}
}

// fieldSelector writes a selector as in URLs. Parts that URLs cannot say are left out, which selects more.
func fieldSelector(s *authorizationv1.FieldSelectorAttributes) string {
	if s.GetRawSelector() != "" {
		return s.GetRawSelector()
	}
	var parts []string
	for _, r := range s.GetRequirements() {
		if len(r.GetValues()) != 1 {
			continue
		}
		switch r.GetOperator() {
		case validation.OpIn:
			parts = append(parts, r.GetKey()+"="+r.GetValues()[0])
		case validation.OpNotIn:
			parts = append(parts, r.GetKey()+"!="+r.GetValues()[0])
		}
	}
	return strings.Join(parts, ",")
}

// checkMeta refuses metadata. The null that clients write for a time of creation is nothing.
func checkMeta(f *validation.Faults, m *metav1.ObjectMeta, detail string) {
	if m == nil {
		return
	}
	empty := &metav1.ObjectMeta{ManagedFields: m.GetManagedFields()}
	if t := m.GetCreationTimestamp(); t != nil && proto.Size(t) == 0 {
		empty.CreationTimestamp = t
	}
	if !proto.Equal(m, empty) {
		f.Invalid(f.Root("metadata"), m.GetName(), detail)
	}
}

func checkAttributes(f *validation.Faults, q question) {
	p, resource, path := f.Root("spec"), q.GetResourceAttributes(), q.GetNonResourceAttributes()
	if resource != nil && path != nil {
		f.Invalid(p.Child("nonResourceAttributes"), path.GetPath(),
			"cannot be specified in combination with resourceAttributes")
	}
	if resource == nil && path == nil {
		f.InvalidValue(p.Child("resourceAttributes"), nil,
			"exactly one of nonResourceAttributes or resourceAttributes must be specified")
	}
	if s := resource.GetFieldSelector(); s != nil {
		at := p.Child("resourceAttributes").Child("fieldSelector")
		checkSelector(f, at, s.GetRawSelector(), len(s.GetRequirements()))
		for i, r := range s.GetRequirements() {
			f.AskedField(at.Child("requirements").Index(i), r)
		}
	}
	if s := resource.GetLabelSelector(); s != nil {
		at := p.Child("resourceAttributes").Child("labelSelector")
		checkSelector(f, at, s.GetRawSelector(), len(s.GetRequirements()))
		for i, r := range s.GetRequirements() {
			f.AskedLabel(at.Child("requirements").Index(i), r)
		}
	}
}

func checkSelector(f *validation.Faults, p *validation.Path, raw string, requirements int) {
	if raw != "" && requirements > 0 {
		f.Invalid(p.Child("rawSelector"), raw, "may not specified at the same time as requirements")
	}
	if raw == "" && requirements == 0 {
		f.Required(p.Child("requirements"), "when "+p.String()+" is specified, requirements or rawSelector is required")
	}
}

func checkSubject(f *validation.Faults, spec *authorizationv1.SubjectAccessReviewSpec) {
	if spec.GetUser() == "" && len(spec.GetGroups()) == 0 {
		f.Invalid(f.Root("spec").Child("user"), "", "at least one of user or group must be specified")
	}
}

// options are those of a request.
type options interface {
	GetDryRun() []string
	GetFieldManager() string
	GetFieldValidation() string
}

// invalid lists what is wrong with a question and the options of its request; nil for nothing.
func invalid(kind *object.Kind, f *validation.Faults, req options) error {
	causes := append(validation.WriteOptions(object.WriteOptions{
		DryRun: req.GetDryRun(), FieldManager: req.GetFieldManager(), FieldValidation: req.GetFieldValidation(),
	}), f.Causes()...)
	if len(causes) > 0 {
		return apierrors.NewInvalid(kind, "", causes)
	}
	return nil
}
