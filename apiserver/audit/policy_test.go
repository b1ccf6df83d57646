package audit_test

import (
	"errors"
	"strings"
	"testing"

	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/internal/strictyaml"
)

func parse(t *testing.T, text string) *audit.Policy {
	t.Helper()
	p, err := audit.ParsePolicy("policy.yaml", []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Everything that is wrong is told at once, with its line and its path.
func TestFaultyPolicies(t *testing.T) {
	_, err := audit.ParsePolicy("policy.yaml", []byte(`apiVersion: audit.k8s.io/v2
kind: Policy
metadata: {name: mine}
omitStages: [RequestReceived, Never]
rules:
- level: Loud
  user: [eve]
- users: [eve]
- level: Metadata
  nonResourceURLs: ["healthz", "/a*b", "*"]
  namespaces: [default]
- level: Request
  resources:
  - group: apps/v1
  - group: ""
    resourceNames: [a]
  omitManagedFields: "yes"
`))
	want := []string{
		`policy.yaml:1: apiVersion: is "audit.k8s.io/v2", expected audit.k8s.io/v1`,
		`policy.yaml:4: omitStages[1]: is "Never", expected one of RequestReceived, ResponseStarted,`,
		`policy.yaml:6: rules[0].level: is "Loud", expected one of None, Metadata, Request, RequestResponse`,
		`policy.yaml:7: rules[0].user: unknown field; known are level, users, userGroups,`,
		`policy.yaml:8: rules[1].level: is missing`,
		`policy.yaml:10: rules[2].nonResourceURLs: stand beside resources or namespaces`,
		`policy.yaml:10: rules[2].nonResourceURLs[0]: is "healthz", expected a path that begins with /`,
		`policy.yaml:10: rules[2].nonResourceURLs[1]: is "/a*b", expected * only as the last character`,
		`policy.yaml:14: rules[3].resources[0].group: is "apps/v1", expected a group without its version`,
		`policy.yaml:16: rules[3].resources[1].resourceNames: stand without resources`,
		`policy.yaml:17: rules[3].omitManagedFields: is the string "yes", expected true or false`,
	}
	var faults strictyaml.Faults
	if !errors.As(err, &faults) || len(faults) != len(want) {
		t.Fatalf("%d faults, want %d:\n%v", len(faults), len(want), err)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("not told: %s\n%v", w, err)
		}
	}
	for _, text := range []string{"", "apiVersion: audit.k8s.io/v1\nkind: Policy\n"} {
		if _, err := audit.ParsePolicy("p", []byte(text)); err == nil {
			t.Errorf("%q is taken for a policy", text)
		}
	}
}

// The first rule that fits decides, and leaves out what it and the policy leave out. test/oracle compares all else
// with Kubernetes.
func TestFirstRuleDecides(t *testing.T) {
	p := parse(t, `
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: [monoplane:admin]
- level: Request
  omitStages: [ResponseStarted]
  omitManagedFields: false
  resources: [{group: "", resources: [pods/exec]}]
- level: Metadata
  resources: [{group: ""}]
`)
	eve, admin := &authn.User{Name: "eve"}, &authn.User{Name: "monoplane:admin"}
	for _, tc := range []struct {
		a    audit.Attributes
		want audit.Level
		omit int
		kept bool
	}{
		{audit.Attributes{User: admin, Objects: true, Resource: "pods"}, audit.LevelNone, 1, false},
		{audit.Attributes{User: eve, Objects: true, Resource: "pods", Subresource: "exec"}, audit.LevelRequest, 2, true},
		{audit.Attributes{User: eve, Objects: true, Resource: "pods"}, audit.LevelMetadata, 1, false},
		{audit.Attributes{User: eve, Path: "/metrics"}, audit.LevelNone, 1, false},
		{audit.Attributes{Objects: true, Resource: "deployments", Group: "apps"}, audit.LevelNone, 1, false},
	} {
		d := p.Decide(&tc.a)
		if d.Level != tc.want || len(d.Omit) != tc.omit || d.OmitManagedFields == tc.kept {
			t.Errorf("%+v: %+v, want %s", tc.a, d, tc.want)
		}
	}
}
