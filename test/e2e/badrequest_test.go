package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monoplane.dev/apiserver/pki"
)

// spec: OBJ-3, OBJ-4
func TestBadRequests(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	admin, p := c.http(t), c.pods(t, ns)
	taken := p.create(t, sleeper("taken"))
	pod := func(meta, spec string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{` + meta + `},"spec":{` + spec + `}}`
	}
	container := `"containers":[{"name":"main","image":"host"}]`
	const jsonType, mergePatch = "application/json", "application/merge-patch+json"

	for _, tc := range []struct {
		name, method, path, contentType, body string
		code                                  int
		reason                                string
		message                               string   // a regular expression
		fields                                []string // of details.causes, in any order
	}{
		{name: "wrong type", method: "POST", contentType: jsonType, body: pod(`"name":"x"`, `"containers":"many"`),
			code: 400, reason: "BadRequest", message: `spec\.containers`},
		{name: "wrong type deep down", method: "POST", contentType: jsonType,
			body: pod(`"name":"x"`, `"containers":[{"name":"main","image":"host","stdin":"yes"}]`),
			code: 400, reason: "BadRequest", message: `spec\.containers\[0\]\.stdin`},
		{name: "number as text", method: "POST", contentType: jsonType,
			body: pod(`"name":"x"`, container+`,"terminationGracePeriodSeconds":"5"`),
			code: 400, reason: "BadRequest", message: `spec\.terminationGracePeriodSeconds`},
		{name: "unknown field", method: "POST", path: "?fieldValidation=Strict", contentType: jsonType,
			body: pod(`"name":"x"`, container+`,"foo":1`),
			code: 400, reason: "BadRequest", message: `strict decoding error: unknown field "spec\.foo"`},
		{name: "duplicate field", method: "POST", path: "?fieldValidation=Strict", contentType: jsonType,
			body: pod(`"name":"x","name":"y"`, container),
			code: 400, reason: "BadRequest", message: `duplicate field "metadata\.name"`},
		{name: "three bad values", method: "POST", contentType: jsonType,
			body: pod(`"name":"Bad_Name"`, `"restartPolicy":"Sometimes","containers":[{"name":"main","image":""}]`),
			code: 422, reason: "Invalid", fields: []string{"metadata.name", "spec.restartPolicy", "spec.containers[0].image"}},
		{name: "a field of a later version", method: "POST", contentType: jsonType,
			body: pod(`"name":"x"`, container+`,"schedulingGroup":{"podGroupName":"x"}`),
			code: 422, reason: "Invalid", fields: []string{"spec.schedulingGroup"}},
		{name: "not JSON", method: "POST", contentType: jsonType, body: `{"apiVersion`, code: 400, reason: "BadRequest"},
		{name: "another kind", method: "POST", contentType: jsonType,
			body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`, code: 400, reason: "BadRequest"},
		{name: "nothing", method: "POST", contentType: jsonType, code: 400, reason: "BadRequest"},
		{name: "4 MiB", method: "POST", contentType: jsonType,
			body: pod(`"name":"x","annotations":{"a":"`+strings.Repeat("x", 4<<20)+`"}`, container),
			code: 413, reason: "RequestEntityTooLarge"},
		{name: "2 MiB", method: "POST", contentType: jsonType, body: pod(`"name":"x"`,
			`"containers":[{"name":"main","image":"host","args":["`+strings.Repeat("x", 2<<20)+`"]}]`),
			code: 413, reason: "RequestEntityTooLarge"},
		{name: "deep arrays", method: "POST", contentType: jsonType, body: strings.Repeat("[", 1<<20), code: 400,
			reason: "BadRequest"},
		{name: "deep unknown field", method: "POST", contentType: jsonType,
			body: pod(`"name":"x"`, `"foo":`+strings.Repeat(`{"a":`, 300_000)+"1"+strings.Repeat("}", 300_000)), code: 400,
			reason: "BadRequest"},
		{name: "deep YAML", method: "POST", contentType: "application/yaml", body: strings.Repeat("[", 100_000), code: 400,
			reason: "BadRequest"},
		{name: "protobuf that is none", method: "POST", contentType: "application/vnd.kubernetes.protobuf",
			body: "k8s\x00junk", code: 400, reason: "BadRequest"},
		{name: "name taken", method: "POST", contentType: jsonType, body: pod(`"name":"taken"`, container),
			code: 409, reason: "AlreadyExists", message: `pods "taken" already exists`},
		{name: "stale resourceVersion", method: "PATCH", path: "/taken", contentType: mergePatch,
			body: `{"metadata":{"resourceVersion":"1","labels":{"a":"b"}}}`, code: 409, reason: "Conflict",
			message: `the object has been modified`},
		{name: "another uid", method: "DELETE", path: "/taken", contentType: jsonType,
			body: `{"preconditions":{"uid":"7a3f1c80-0000-4000-8000-000000000000"}}`,
			code: 409, reason: "Conflict", message: `UID in precondition`},
		{name: "another resourceVersion", method: "DELETE", path: "/taken", contentType: jsonType,
			body: `{"preconditions":{"resourceVersion":"1"}}`,
			code: 409, reason: "Conflict"},
		{name: "delete options of another type", method: "DELETE", path: "/taken", contentType: jsonType,
			body: `{"gracePeriodSeconds":"soon"}`, code: 400, reason: "BadRequest"},
		{name: "patch of an unknown type", method: "PATCH", path: "/taken", contentType: "application/x-patch", body: `{}`,
			code: 415, reason: "UnsupportedMediaType"},
		{name: "patch of a name", method: "PATCH", path: "/taken", contentType: mergePatch,
			body: `{"metadata":{"name":"other"}}`, code: 400, reason: "BadRequest"},
		{name: "JSON patch whose test fails", method: "PATCH", path: "/taken", contentType: "application/json-patch+json",
			body: `[{"op":"test","path":"/metadata/name","value":"x"}]`, code: 422, reason: "Invalid"},
		{name: "a missing pod", method: "GET", path: "/none", code: 404, reason: "NotFound",
			message: `pods "none" not found`},
		{name: "a missing subresource", method: "GET", path: "/taken/nothing", code: 404, reason: "NotFound"},
		{name: "a method that is not there", method: "PUT", contentType: jsonType, body: `{}`, code: 405,
			reason: "MethodNotAllowed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := send(t, admin, tc.method, c.url+"/api/v1/namespaces/"+ns+"/pods"+tc.path, tc.contentType, tc.body)
			var status metav1.Status
			if err := json.Unmarshal([]byte(got.body), &status); err != nil {
				t.Fatalf("answer %d is no Status: %.300s", got.code, got.body)
			}
			if got.code != tc.code || string(status.Reason) != tc.reason || int(status.Code) != tc.code {
				t.Errorf("%d %s %.300s, want %d %s", got.code, status.Reason, status.Message, tc.code, tc.reason)
			}
			if !regexp.MustCompile(tc.message).MatchString(status.Message) {
				t.Errorf("message %.300q, want %s", status.Message, tc.message)
			}
			if len(tc.fields) > 0 {
				wantFields(t, status, tc.fields)
			}
		})
	}
	list, err := p.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].UID != taken.UID || list.Items[0].DeletionTimestamp != nil ||
		len(list.Items[0].Labels) != 1 {
		t.Errorf("the requests changed something: %+v, %v", list.Items, err)
	}
	if got := send(t, admin, "GET", c.url+"/readyz", "", ""); got.code != http.StatusOK {
		t.Errorf("readyz afterwards: %d %s", got.code, got.body)
	}
}

func wantFields(t *testing.T, status metav1.Status, want []string) {
	t.Helper()
	if status.Details == nil {
		t.Fatal("no details")
	}
	have := map[string]bool{}
	for _, cause := range status.Details.Causes {
		have[cause.Field] = true
	}
	for _, field := range want {
		if !have[field] {
			t.Errorf("no cause names %s: %+v", field, status.Details.Causes)
		}
	}
	if len(have) != len(want) {
		t.Errorf("causes %+v, want %v", status.Details.Causes, want)
	}
}

// Without Strict an unknown field is dropped, and said.
// spec: OBJ-3
func TestUnknownFieldWarns(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"colour":"red"}`
	got := send(t, c.http(t), "POST", c.url+"/api/v1/namespaces/"+ns+"/configmaps", "application/json", body)
	if got.code != http.StatusCreated || !strings.Contains(got.warning, `unknown field \"colour\"`) {
		t.Errorf("%d, warning %q", got.code, got.warning)
	}
}

// The same mistakes as a user of kubectl sees them: one clear message, nothing created.
// spec: OBJ-3, CLI-2
func TestBadManifests(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	pod := func(spec string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n" + spec
	}
	const good = "  containers: [{name: main, image: host}]\n"
	k.tour(t, []step{
		{line: "apply -f -", code: 1, stdin: pod(good + "  restartPolcy: Never\n"), want: []string{
			`^Error from server \(BadRequest\): error when creating "STDIN": .*strict decoding error: unknown field ` +
				`"spec\.restartPolcy"$`}},
		{line: "apply -f -", code: 1, stdin: pod("  containers: many\n"),
			want: []string{`^Error from server \(BadRequest\).*spec\.containers`}},
		{line: "create -f -", code: 1, stdin: pod("  restartPolicy: Sometimes\n  containers: [{name: Main, image: ''}]\n"),
			want: []string{
				`^The Pod "p" is invalid: *$`, `^\* spec\.restartPolicy: Unsupported value: "Sometimes": supported values: ` +
					`"Always", "OnFailure", "Never"$`,
				`^\* spec\.containers\[0\]\.name: Invalid value: "Main"`, `^\* spec\.containers\[0\]\.image: Required value$`,
			}},
		{line: "create -f - -n missing", code: 1, stdin: pod(good), want: []string{`namespaces "missing" not found`}},
		{line: "delete pod none", code: 1, want: []string{`^Error from server \(NotFound\): pods "none" not found$`}},
		{line: "get pods", want: []string{`No resources found`}},
	})
}

// Certificates and tokens that this cluster did not issue, or none at all.
func TestIdentities(t *testing.T) {
	t.Parallel()
	c := shared(t)
	foreign, err := pki.Ensure(filepath.Join(t.TempDir(), "pki"), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	admin := foreign.Admin()
	wantStatus := func(t *testing.T, got answer, code int, reason string) {
		t.Helper()
		if got.code != code || !strings.Contains(got.body, `"reason":"`+reason+`"`) {
			t.Errorf("%d %s, want %d %s", got.code, got.body, code, reason)
		}
	}
	t.Run("unknown authority", func(t *testing.T) {
		client := c.httpAs(t, &admin)
		resp, err := client.Get(c.url + "/api/v1/nodes")
		if err == nil {
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("status %d, want 401 or a refused handshake", resp.StatusCode)
			}
			return
		}
		if !strings.Contains(err.Error(), "certificate") {
			t.Errorf("the error does not name the certificate: %v", err)
		}
	})
	t.Run("unknown authority, kubectl", func(t *testing.T) {
		// Right server, right CA, wrong client certificate.
		ca, err := os.ReadFile(filepath.Join(c.dir, "pki", "ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		id := admin
		id.CA = ca
		data, err := pki.Kubeconfig(id, pki.Endpoints{REST: c.url})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		newKubectl(t, path, "default").tour(t,
			[]step{{line: "get pods", code: 1, want: []string{`(?i)certificate|unauthorized|logged in`}}})
	})
	t.Run("none", func(t *testing.T) {
		client := c.httpAs(t, nil)
		got := send(t, client, "GET", c.url+"/api/v1/nodes", "", "")
		if got.code != http.StatusUnauthorized && got.code != http.StatusForbidden {
			t.Errorf("%d %s, want 401 or 403", got.code, got.body)
		}
	})
	t.Run("wrong token", func(t *testing.T) {
		got := send(t, c.httpAs(t, nil), "GET", c.url+"/api/v1/nodes", "", "", "Authorization", "Bearer nonsense")
		wantStatus(t, got, http.StatusUnauthorized, "Unauthorized")
	})
	t.Run("right token", func(t *testing.T) {
		token, err := os.ReadFile(filepath.Join(c.dir, "pki", "admin.token"))
		if err != nil {
			t.Fatal(err)
		}
		got := send(t, c.httpAs(t, nil), "GET", c.url+"/api/v1/nodes", "", "", "Authorization",
			"Bearer "+strings.TrimSpace(string(token)))
		if got.code != http.StatusOK {
			t.Errorf("%d %s", got.code, got.body)
		}
	})
}

// An agent that holds a certificate of this cluster may not touch the pods of another node.
// spec: DEL-8
func TestAgentOfAnotherNode(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	p := c.pods(t, ns)
	pod := p.run(t, sleeper("mine"))
	bundle, err := pki.Ensure(filepath.Join(c.dir, "pki"), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	as := func(node string) *http.Client {
		id, err := bundle.Issue("system:node:"+node, []string{"system:nodes"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return c.httpAs(t, &id)
	}
	url := c.url + "/api/v1/namespaces/" + ns + "/pods/mine"
	force := fmt.Sprintf(`{"gracePeriodSeconds":0,"preconditions":{"uid":%q}}`, pod.UID)
	for _, tc := range []struct{ name, node, method, path, contentType, body string }{
		{"force delete from another node", "intruder", "DELETE", "", "application/json", force},
		{"force delete of a pod that is not being deleted", pod.Spec.NodeName, "DELETE", "", "application/json", force},
		{"force delete without a uid", pod.Spec.NodeName, "DELETE", "", "application/json", `{"gracePeriodSeconds":0}`},
		{"status from another node", "intruder", "PATCH", "/status", "application/merge-patch+json",
			`{"status":{"phase":"Failed"}}`},
		{"change of the pod", pod.Spec.NodeName, "PATCH", "", "application/merge-patch+json",
			`{"metadata":{"labels":{"a":"b"}}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := send(t, as(tc.node), tc.method, url+tc.path, tc.contentType, tc.body)
			if got.code != http.StatusForbidden || !strings.Contains(got.body, `"reason":"Forbidden"`) {
				t.Errorf("%d %s, want 403 Forbidden", got.code, got.body)
			}
		})
	}
	after, err := p.Get(t.Context(), "mine", metav1.GetOptions{})
	if err != nil || after.UID != pod.UID || after.DeletionTimestamp != nil || after.Status.Phase != corev1.PodRunning {
		t.Errorf("pod afterwards: %+v, %v", after, err)
	}
}
