package oracle

import (
	"context"
	"math/rand/v2"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	oz "monoplane.dev/api/authorization/v1"
	ozrpc "monoplane.dev/api/authorization/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/authn"
	ourauthorization "monoplane.dev/apiserver/kinds/authorization"
	"monoplane.dev/apiserver/kinds/define"
)

// reviewSpec is a question, in some of whose parts something is wrong.
func reviewSpec(r *rand.Rand) authorizationv1.SubjectAccessReviewSpec {
	s := authorizationv1.SubjectAccessReviewSpec{User: mostly(r, []string{"ada", ""})}
	if r.IntN(3) == 0 {
		s.Groups = []string{"devs"}
	}
	if r.IntN(5) > 0 {
		a := &authorizationv1.ResourceAttributes{
			Namespace: mostly(r, []string{"default", "", "other"}), Verb: mostly(r, []string{"get", "", "*"}),
			Resource: mostly(r, []string{"pods", "", "*"}),
		}
		operator := func() metav1.LabelSelectorOperator {
			return mostly(r, []metav1.LabelSelectorOperator{"In", "Exists", "NotIn", "", "Other"})
		}
		if r.IntN(3) == 0 {
			a.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: mostly(r, []string{"", "a=b", "a in"})}
			for range r.IntN(3) {
				a.FieldSelector.Requirements = append(a.FieldSelector.Requirements, metav1.FieldSelectorRequirement{
					Key: mostly(r, []string{"a", ""}), Operator: metav1.FieldSelectorOperator(operator()),
					Values: mostly(r, [][]string{{"v"}, nil, {"v", "w"}}),
				})
			}
		}
		if r.IntN(3) == 0 {
			a.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: mostly(r, []string{"", "a=b", "a in"})}
			for range r.IntN(3) {
				a.LabelSelector.Requirements = append(a.LabelSelector.Requirements, metav1.LabelSelectorRequirement{
					Key: mostly(r, []string{"a", ""}), Operator: operator(),
					Values: mostly(r, [][]string{{"v"}, nil, {"v", "w"}}),
				})
			}
		}
		s.ResourceAttributes = a
	}
	if r.IntN(5) == 0 {
		s.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
	}
	return s
}

func reviewMeta(r *rand.Rand, namespace string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: namespace}
	switch r.IntN(8) {
	case 0:
		m.Name = "named"
	case 1:
		m.Labels = map[string]string{"a": "b"}
	case 2:
		m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Update", APIVersion: "v1"}}
	}
	return m
}

// reviewFaults has what an answer says is wrong with a question.
func reviewFaults(err error) faults {
	set := faults{}
	if err == nil {
		return set
	}
	for _, c := range apierrors.From(err).Status().GetDetails().GetCauses() {
		set[fault{c.GetReason(), c.GetField(), c.GetMessage()}] = true
	}
	return set
}

// Questions about rights are judged as in Kubernetes, those about oneself and those within a namespace included.
//
// spec: OBJ-3
func TestAccessReviewsAreJudgedAlike(t *testing.T) {
	cfg := define.Config{Rights: auth.NewAuthorizer(nil, nil)}
	ctx := authn.WithUser(context.Background(), &authn.User{Name: "ada"})
	reviews := ourauthorization.SubjectAccessReview(cfg).Server(nil, nil).(ozrpc.SubjectAccessReviewsServer)
	local := ourauthorization.LocalSubjectAccessReview(cfg).Server(nil, nil).(ozrpc.LocalSubjectAccessReviewsServer)
	self := ourauthorization.SelfSubjectAccessReview(cfg).Server(nil, nil).(ozrpc.SelfSubjectAccessReviewsServer)
	r := random(t)
	bad, fine := 0, 0
	for i := 0; i < *count && bad < 25; i++ {
		spec := reviewSpec(r)
		k := &authorizationv1.SubjectAccessReview{ObjectMeta: reviewMeta(r, ""), Spec: spec}
		_, err := reviews.Create(ctx, &ozrpc.CreateSubjectAccessReviewRequest{
			Object: mustOurs(t, k, &oz.SubjectAccessReview{}),
		})
		if err == nil {
			fine++
		}
		theirs := ask[faults](t, "reviews", k)
		if report(t, []string{"review", k.String()}, compare(theirs, reviewFaults(err))) {
			bad++
		}

		namespace := mostly(r, []string{"default", "other"})
		l := &authorizationv1.LocalSubjectAccessReview{ObjectMeta: reviewMeta(r, namespace), Spec: spec}
		_, err = local.Create(ctx, &ozrpc.CreateLocalSubjectAccessReviewRequest{
			Namespace: namespace, Object: mustOurs(t, l, &oz.LocalSubjectAccessReview{}),
		})
		theirs = ask[faults](t, "local-reviews", l)
		if report(t, []string{"local", l.String()}, compare(theirs, reviewFaults(err))) {
			bad++
		}

		s := &authorizationv1.SelfSubjectAccessReview{
			ObjectMeta: reviewMeta(r, ""), Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: spec.ResourceAttributes, NonResourceAttributes: spec.NonResourceAttributes,
			},
		}
		_, err = self.Create(ctx, &ozrpc.CreateSelfSubjectAccessReviewRequest{
			Object: mustOurs(t, s, &oz.SelfSubjectAccessReview{}),
		})
		theirs = ask[faults](t, "self-reviews", s)
		if report(t, []string{"self", s.String()}, compare(theirs, reviewFaults(err))) {
			bad++
		}
	}
	if *count >= 1000 && fine < *count/20 {
		t.Errorf("only %d of %d were in order", fine, *count)
	}
}
