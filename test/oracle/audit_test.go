package oracle

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	auditvalidation "k8s.io/apiserver/pkg/apis/audit/validation"
	auditpolicy "k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/authn"
)

// some returns a few of the values, mostly none.
func some[T any](r *rand.Rand, from []T) []T {
	if r.IntN(2) == 0 {
		return nil
	}
	list := []T{pick(r, from)}
	if r.IntN(2) == 0 {
		list = append(list, pick(r, from))
	}
	return list
}

func auditPolicy(r *rand.Rand) *auditv1.Policy {
	allStages := []auditv1.Stage{"RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"}
	if r.IntN(20) == 0 {
		allStages = append(allStages, "Never")
	}
	p := &auditv1.Policy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "audit.k8s.io/v1", Kind: "Policy"},
		OmitStages: some(r, allStages), OmitManagedFields: r.IntN(2) == 0,
	}
	for range 1 + r.IntN(4) {
		rule := auditv1.PolicyRule{
			Level: pick(r, []auditv1.Level{"None", "Metadata", "Request", "RequestResponse"}),
			Users: some(r, []string{"eve", "bob"}), UserGroups: some(r, []string{"ops", "dev"}),
			Verbs: some(r, []string{"get", "list", "watch", "create", "delete"}), OmitStages: some(r, allStages),
		}
		if r.IntN(2) == 0 {
			rule.OmitManagedFields = ptr(r.IntN(2) == 0)
		}
		if r.IntN(3) == 0 {
			rule.NonResourceURLs = some(r, []string{"*", "/*", "/healthz", "/healthz*", "/api", "/api/**", "metrics", "/a*b",
				""})
		}
		if rule.NonResourceURLs == nil || r.IntN(10) == 0 {
			rule.Namespaces = some(r, []string{"", "default", "kube-system"})
			for range r.IntN(3) {
				rule.Resources = append(rule.Resources, auditv1.GroupResources{
					Group: pick(r, []string{"", "", "apps", "apps", "*", "apps/v1"}),
					Resources: some(r, []string{"pods", "pods/log", "pods/*", "*", "*/log", "*/*", "/log", "pods/", "deployments",
						"deployments/scale"}),
					ResourceNames: some(r, []string{"a", "b", ""}),
				})
			}
		}
		p.Rules = append(p.Rules, rule)
	}
	return p
}

// auditRequest is a random request, as Kubernetes reads it and as we do.
func auditRequest(t *testing.T, r *rand.Rand) (string, *request.RequestInfo, audit.Attributes) {
	t.Helper()
	parts := []string{}
	for range r.IntN(8) {
		parts = append(parts, pick(r, []string{"api", "apis", "v1", "apps", "namespaces", "default", "pods", "deployments",
			"a",
			"log", "scale", "status", "finalize", "watch", "healthz", "", "x"}))
	}
	path := "/" + strings.Join(parts, "/")
	switch r.IntN(4) {
	case 0:
		path = "/api/v1/namespaces/" + path[1:]
	case 1:
		path = pick(r, []string{"/api/v1", "/apis/apps/v1", "/api/v1/namespaces/default/pods"}) + path
	}
	query := pick(r, []string{"", "", "watch=1", "watch=true", "watch=false", "watch=0", "watch", "watch=yes",
		"fieldSelector=metadata.name%3Da", "fieldSelector=metadata.name%3Da%252f", "fieldSelector=metadata.name!%3Da",
		"watch=1&fieldSelector=metadata.name%3Db", "fieldSelector=%3D%3D%3D"})
	method := pick(r, []string{"GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
	u := &url.URL{Path: path, RawQuery: query}
	factory := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := factory.NewRequestInfo(&http.Request{Method: method, URL: u})
	if err != nil {
		return "", nil, audit.Attributes{}
	}
	return method + " " + path + "?" + query, info, audit.AttributesOf(method, u)
}

// Policies are taken or refused, and decide, as they do for kube-apiserver; and requests are read as it reads them.
func TestAuditPoliciesDecideAlike(t *testing.T) {
	r, bad, decided := random(t), 0, map[audit.Level]int{}
	for i := 0; i < *count && bad < 25; i++ {
		theirs := auditPolicy(r)
		text, err := yaml.Marshal(theirs)
		if err != nil {
			t.Fatal(err)
		}
		var inside auditinternal.Policy
		if err := auditv1.Convert_v1_Policy_To_audit_Policy(theirs, &inside, nil); err != nil {
			t.Fatal(err)
		}
		faults := auditvalidation.ValidatePolicy(&inside)
		ours, err := audit.ParsePolicy("policy.yaml", text)
		if (err == nil) != (len(faults) == 0) {
			t.Errorf("Kubernetes says %v, we say %v of\n%s", faults, err, text)
			bad++
			continue
		}
		if err != nil {
			continue
		}
		evaluator := auditpolicy.NewPolicyRuleEvaluator(&inside)
		for range 20 {
			what, info, a := auditRequest(t, r)
			if info == nil {
				continue
			}
			var u user.Info
			if r.IntN(8) > 0 {
				a.User = &authn.User{Name: pick(r, []string{"eve", "bob", "x"}), Groups: some(r, []string{"ops", "dev", "x"})}
				u = &user.DefaultInfo{Name: a.User.Name, Groups: a.User.Groups}
			}
			want := fmt.Sprint(info.Verb, " ", info.APIGroup, "/", info.Resource, "/", info.Subresource, " ", info.Namespace,
				"/",
				info.Name)
			got := fmt.Sprint(a.Verb, " ", a.Group, "/", a.Resource, "/", a.Subresource, " ", a.Namespace, "/", a.Name)
			if got != want || info.IsResourceRequest != a.Objects {
				t.Errorf("%s: Kubernetes reads %s, we read %s", what, want, got)
				bad++
				continue
			}
			k := evaluator.EvaluatePolicyRule(authorizer.AttributesRecord{
				User: u, Verb: info.Verb, APIGroup: info.APIGroup, Resource: info.Resource, Subresource: info.Subresource,
				Namespace: info.Namespace, Name: info.Name, Path: info.Path, ResourceRequest: info.IsResourceRequest,
			})
			d := ours.Decide(&a)
			decided[d.Level]++
			omits := func(s auditinternal.Stage) bool {
				return slices.Contains(k.OmitStages, s) == slices.Contains(d.Omit, audit.Stage(s))
			}
			if string(k.Level) != string(d.Level) || k.OmitManagedFields != d.OmitManagedFields || !omits("RequestReceived") ||
				!omits("ResponseStarted") || !omits("ResponseComplete") || !omits("Panic") {
				t.Errorf("%s by %+v: Kubernetes decides %+v, we %+v, of\n%s", what, a.User, k, d, text)
				bad++
			}
		}
	}
	if bad == 0 && *count >= 100 && len(decided) != 4 {
		t.Errorf("not every level was decided: %v", decided)
	}
}
