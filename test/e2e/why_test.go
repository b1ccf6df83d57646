package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// why runs `monoplane why` and returns what it prints.
func (c *cluster) why(t *testing.T, stdin string, args ...string) (output string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t, "monoplane"), append([]string{"why", "--data-dir", c.dir},
		args...)...)
	cmd.Env = environment()
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// plugin runs `kubectl monoplane`, which a symlink of the program makes, as somebody whose data directory is c's.
func (k *kubectl) plugin(t *testing.T, c *cluster, args ...string) (output string, code int) {
	t.Helper()
	bin := t.TempDir()
	if err := os.Symlink(binary(t, "monoplane"), filepath.Join(bin, "kubectl-monoplane")); err != nil {
		t.Fatal(err)
	}
	// Kubectl takes none of its own flags before the name of a plugin.
	cmd := exec.CommandContext(t.Context(), k.path, append([]string{"monoplane"}, args...)...)
	cmd.Env = append(slices.Clone(k.env), "PATH="+bin+":"+os.Getenv("PATH"), "MONOPLANE_DATA_DIR="+c.dir)
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

// Why a pod is pending, with kubectl and with our own command, in the words of its event. Its own cluster, because it
// taints nodes.
// spec: SCHED-6, CLI-2
func TestWhy(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--runtime", "fake", "--nodes", "3")
	k := c.kubectl(t, "default")
	const pod = `apiVersion: v1
kind: Pod
metadata: {name: big}
spec:
  nodeSelector: {disk: ssd}
  containers: [{name: c, image: nginx, resources: {requests: {cpu: "1000"}}}]
`
	const review = "apiVersion: scheduling.monoplane.dev/v1\nkind: PlacementReview\nspec: "
	small := filepath.Join(t.TempDir(), "small.yaml")
	text := strings.NewReplacer("name: big", "name: small", `"1000"`, "10m", "nodeSelector: {disk: ssd}", "").Replace(pod)
	if err := os.WriteFile(small, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	nodes := strings.Fields(k.ok(t, "get nodes -o name"))
	k.ok(t, "label "+nodes[0]+" disk=ssd")
	k.ok(t, "taint node "+strings.TrimPrefix(nodes[2], "node/")+" team=db:NoSchedule")
	k.tour(t, []step{{line: "apply -f -", stdin: pod, want: []string{`^pod/big created$`}}})
	event := k.until(t, "describe pod big", `FailedScheduling`)
	sentence := regexp.MustCompile(`0/3 nodes are available: .*`).FindString(event)

	out, code := c.why(t, "", "big")
	first, rest, _ := strings.Cut(out, "\n")
	if code != 0 || sentence == "" || first != strings.TrimSpace(sentence) {
		t.Errorf("why says, with code %d,\n%s\nthe event says\n%s", code, first, sentence)
	}
	for _, want := range []string{
		`(?m)^Queue: Unschedulable, tried (once|\d+ times), last at .*; refused by NodeAffinity, NodeResourcesFit, ` +
			`TaintToleration$`,
		`(?m)^NODE +FITS +SCORE +WHY$`,
		`(?m)^\S+ +no +- +NodeResourcesFit: Insufficient cpu$`,
		`(?m)^\S+ +no +- +NodeAffinity: node\(s\) didn't match Pod's node affinity/selector; ` +
			`NodeResourcesFit: Insufficient cpu$`,
		`(?m)^\S+ +no +- +TaintToleration: node\(s\) had untolerated taint\(s\); NodeAffinity: [^;]*; ` +
			`NodeResourcesFit: Insufficient cpu$`,
	} {
		if !regexp.MustCompile(want).MatchString(rest) {
			t.Errorf("no %s in\n%s", want, rest)
		}
	}
	for _, args := range [][]string{{"-f", small}, {"-f", "-"}} {
		out, code = c.why(t, text, args...)
		if code != 0 || !strings.Contains(out, "2/3 nodes are available: the pod would go to ") ||
			!regexp.MustCompile(`(?m)^\S+ +yes +\d+ +.*NodeResourcesFit \d+`).MatchString(out) {
			t.Errorf("%v: code %d\n%s", args, code, out)
		}
	}
	if out, code = c.why(t, "", "-o", "json", "big"); code != 0 || !strings.Contains(out, `"kind": "PlacementReview"`) {
		t.Errorf("json: code %d\n%s", code, out)
	}
	if out, code = k.plugin(t, c, "why", "pod/big"); code != 0 || !strings.HasPrefix(out, first+"\n") {
		t.Errorf("as a plugin of kubectl: code %d\n%s", code, out)
	}
	if out, code = k.plugin(t, c, "why", "pod/nobody"); code != 1 ||
		out != "kubectl monoplane: pods \"nobody\" not found\n" {
		t.Errorf("as a plugin of kubectl, a pod that is not there: code %d\n%s", code, out)
	}
	if out, code = c.why(t, "", "nobody"); code != 1 || out != "monoplane: pods \"nobody\" not found\n" {
		t.Errorf("a pod that is not there: code %d\n%s", code, out)
	}

	k.tour(t, []step{
		{line: "create -f - -o yaml", stdin: review + "{podName: big}\n", want: []string{
			`^  message: '0/3 nodes are available: `, `^  fitCount: 0$`, `^      plugin: NodeResourcesFit$`,
			`^    state: Unschedulable$`,
		}},
		{line: "create -f - -o yaml", stdin: review + "{podName: big, limit: 1}\n", want: []string{`^  nodeCount: 3$`}},
		{line: "create -f - -o jsonpath={.status.nodes[0].fits}", want: []string{`^true$`},
			stdin: review + "{pod: {spec: {containers: [{name: c, image: nginx}]}}}\n"},
		{line: "create -f -", stdin: review + "{podName: big, also: 1}\n", code: 1,
			want: []string{`unknown field "also" in dev\.monoplane\.scheduling\.v1\.PlacementReviewSpec`}},
		{line: "create -f -", stdin: review + "{}\n", code: 1, want: []string{`either podName or pod must be given`}},
		{line: "create -f -", code: 1, want: []string{`spec\.containers\[0\]\.name: Invalid value: "A b"`},
			stdin: review + "{pod: {metadata: {name: x}, spec: {containers: [{name: A b, image: nginx}]}}}\n"},
		{line: "get pods -o name", want: []string{`^pod/big$`}},
		{line: "get placementreviews", code: 1, want: []string{`MethodNotAllowed`}},
		{line: "api-resources --api-group=scheduling.monoplane.dev", want: []string{
			`^placementreviews +scheduling\.monoplane\.dev/v1 +true +PlacementReview$`,
		}},
		{line: "explain placementreview.status.nodes.refusedBy", want: []string{`^FIELD: refusedBy <PlacementRefusal>$`}},
	})
	if out := k.ok(t, "get pods -o name"); strings.Contains(out, "small") {
		t.Errorf("a described pod was stored: %s", out)
	}
}
