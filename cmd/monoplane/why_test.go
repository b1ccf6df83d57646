package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	schedulingv1 "monoplane.dev/api/scheduling/v1"
	"monoplane.dev/codec/value"
)

func TestShowWhy(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	total := int64(173)
	review := &schedulingv1.PlacementReview{Status: &schedulingv1.PlacementReviewStatus{
		Message: "1/2 nodes are available.",
		Queue: &schedulingv1.PlacementQueue{State: "Unschedulable", Attempts: 2, LastFailure: value.MicroTime(at),
			WaitsFor: []string{"A", "B"}},
		Preemption: &schedulingv1.PlacementPreemption{NodeName: "n2", Victims: []string{"ns/v"}},
		Nodes: []*schedulingv1.PlacementNode{
			{Name: "n1", Fits: true, Total: &total, Scores: []*schedulingv1.PlacementScore{
				{Plugin: "A", Score: 99, Weight: 1}, {Plugin: "B", Score: 37, Weight: 2},
			}},
			{Name: "node-2", RefusedBy: &schedulingv1.PlacementRefusal{Plugin: "C", Reasons: []string{"too small", "too far"}},
				AlsoRefusedBy: []*schedulingv1.PlacementRefusal{{Plugin: "D", Reasons: []string{"too old"}}}},
			{Name: "n3", RefusedBy: &schedulingv1.PlacementRefusal{Reasons: []string{"there is no such node"}}},
		},
	}}
	const want = `1/2 nodes are available.
Queue: Unschedulable, tried 2 times, last at 2026-03-01T12:00:00Z; refused by A, B
Preemption: would remove from n2: ns/v

NODE     FITS   SCORE   WHY
n1       yes    173     A 99 + B 37 x 2
node-2   no     -       C: too small, too far; D: too old
n3       no     -       there is no such node
`
	var out bytes.Buffer
	if err := showWhy(&out, review); err != nil || out.String() != want {
		t.Errorf("%v, got\n%s", err, &out)
	}
	out.Reset()
	review.Status = &schedulingv1.PlacementReviewStatus{Message: "the pod is bound to node n1"}
	if err := showWhy(&out, review); err != nil || out.String() != "the pod is bound to node n1\n" {
		t.Errorf("%v, got %q", err, &out)
	}
}

func TestWhyRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Pod\nspec: {countainers: []}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"name a pod, or a file with -f":             {"why"},
		"and not both":                              {"why", "p", "-f", file},
		`unknown field "spec.countainers"`:          {"why", "-f", file},
		"no such file":                              {"why", "-f", file + "x"},
		`"wide" is not one of table, json and yaml`: {"why", "p", "-o", "wide"},
		"no cluster has run on":                     {"why", "p", "--data-dir", t.TempDir()},
		"it has no kubeconfig":                      {"why", "pod", "p", "--data-dir", t.TempDir()},
		"as KIND/NAME or KIND NAME":                 {"why", "pod/p", "q"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), programName, args, &stdout, &stderr); code != 1 || stdout.Len() > 0 ||
			!strings.Contains(stderr.String(), want) {
			t.Errorf("%v: code %d, stdout %q, stderr %q", args, code, &stdout, &stderr)
		}
	}
}
