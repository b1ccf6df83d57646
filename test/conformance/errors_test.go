package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	errorsFile = "testdata/errors.txt"
	jsonType   = "application/json"
	mergePatch = "application/merge-patch+json"
	strategic  = "application/strategic-merge-patch+json"
	jsonPatch  = "application/json-patch+json"
	applyPatch = "application/apply-patch+yaml"
)

// exchange is a request that is refused, or warned about.
type exchange struct {
	name         string
	method, path string
	// body, of a content type, which is JSON unless it says otherwise.
	body, contentType string
	header            map[string]string
	// as is a user without rights, to act as.
	as string
	// stranger leaves the credentials out.
	stranger bool
}

// in is the namespace of the requests below, terminating another one, where nothing can be made any more.
const in, terminating = "errors", "errors-terminating"

// prepared is what the requests below find there.
var prepared = []exchange{
	{method: "POST", path: "/api/v1/namespaces", body: `{"metadata":{"name":"` + in + `"}}`},
	{method: "POST", path: "/api/v1/namespaces", body: `{"metadata":{"name":"` + terminating + `"}}`},
	{method: "POST", path: configmaps, body: `{"metadata":{"name":"a"},"data":{"k":"v"}}`},
	{
		method: "POST", path: "/api/v1/namespaces/" + terminating + "/configmaps",
		body: `{"metadata":{"name":"held","finalizers":["example.com/held"]}}`,
	},
	{method: "DELETE", path: "/api/v1/namespaces/" + terminating},
	{method: "POST", path: deployments, body: deployment("web", `"replicas":1,`)},
	{method: "POST", path: pods, body: pod("p")},
	{method: "POST", path: budgets, body: `{"metadata":{"name":"all"},"spec":{"minAvailable":2,"selector":{}}}`},
	{
		method: "PATCH", path: configmaps + "/owned?fieldManager=one", contentType: applyPatch,
		body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owned"},"data":{"a":"1","b":"1"}}`,
	},
}

const (
	configmaps  = "/api/v1/namespaces/" + in + "/configmaps"
	pods        = "/api/v1/namespaces/" + in + "/pods"
	deployments = "/apis/apps/v1/namespaces/" + in + "/deployments"
	budgets     = "/apis/policy/v1/namespaces/" + in + "/poddisruptionbudgets"
	other       = "7a3f1c80-0000-4000-8000-000000000000" // a uid that nothing has
)

func pod(name string) string {
	return `{"metadata":{"name":"` + name + `","labels":{"app":"p"}},"spec":{"containers":[{"name":"c","image":"a"}]}}`
}

func deployment(name, more string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{` + more + `"selector":{"matchLabels":{"app":"web"}},` +
		`"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"a"}]}}}}`
}

// refused are the requests whose answers are compared.
var refused = []exchange{
	{name: "an unknown field", method: "POST", path: configmaps + "?fieldValidation=Strict",
		body: `{"metadata":{"name":"x"},"foo":1,"data":{"a":"1","a":"2"}}`},
	{name: "an unknown field, warned about", method: "POST", path: configmaps + "?dryRun=All",
		body: `{"metadata":{"name":"x"},"foo":1,"data":{"a":"1","a":"2"}}`},
	{name: "an unknown field in a merge patch", method: "PATCH", path: deployments + "/web?fieldValidation=Strict",
		contentType: mergePatch, body: `{"spec":{"foo":1}}`},
	{name: "an unknown field in a strategic patch, warned about", method: "PATCH", contentType: strategic,
		path: deployments + "/web?dryRun=All", body: `{"spec":{"foo":1}}`},
	{name: "an unknown field in an apply", method: "PATCH", path: deployments + "/web?fieldManager=m",
		contentType: applyPatch, body: `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"foo":1}}`},
	{name: "no JSON", method: "POST", path: configmaps, body: `{"metadata`},
	{name: "no body", method: "POST", path: configmaps},
	{name: "an object of another kind", method: "POST", path: configmaps, body: `{"apiVersion":"v1","kind":"Secret"}`},
	{name: "an object of another version", method: "POST", path: configmaps,
		body: `{"apiVersion":"v2","kind":"ConfigMap"}`},
	{name: "a body of an unknown type", method: "POST", path: configmaps, contentType: "text/plain", body: "x"},
	{name: "an answer of an unknown type", method: "GET", path: configmaps,
		header: map[string]string{"Accept": "text/x"}},
	{name: "a patch of an unknown type", method: "PATCH", path: configmaps + "/a", contentType: "text/plain", body: "{}"},
	{name: "a body that is too large", method: "POST", path: configmaps,
		body: `{"metadata":{"name":"x"},"data":{"a":"` + strings.Repeat("x", 3<<20) + `"}}`},
	{name: "a name that is taken", method: "POST", path: configmaps, body: `{"metadata":{"name":"a"}}`},
	{name: "a name that is taken, of a group", method: "POST", path: deployments, body: deployment("web", "")},
	{name: "a revision of before", method: "PUT", path: configmaps + "/a",
		body: `{"metadata":{"name":"a","resourceVersion":"1"}}`},
	{name: "a revision of before, in a patch", method: "PATCH", path: deployments + "/web", contentType: mergePatch,
		body: `{"metadata":{"resourceVersion":"1","labels":{"a":"b"}}}`},
	{name: "a revision that is no number", method: "PUT", path: configmaps + "/a",
		body: `{"metadata":{"name":"a","resourceVersion":"x"}}`},
	{name: "a revision in a new object", method: "POST", path: configmaps,
		body: `{"metadata":{"name":"x","resourceVersion":"5"}}`},
	{name: "another uid", method: "PUT", path: configmaps + "/a",
		body: `{"metadata":{"name":"a","uid":"` + other + `"}}`},
	{name: "another uid, in a patch", method: "PATCH", path: deployments + "/web", contentType: strategic,
		body: `{"metadata":{"uid":"` + other + `"}}`},
	{name: "another uid, in an apply", method: "PATCH", path: configmaps + "/a?fieldManager=m", contentType: applyPatch,
		body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"uid":"` + other + `"}}`},
	{name: "another uid, in an apply of what is not there", method: "PATCH", path: configmaps + "/new?fieldManager=m",
		contentType: applyPatch,
		body:        `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"uid":"` + other + `"}}`},
	{name: "another uid, in a deletion", method: "DELETE", path: configmaps + "/a",
		body: `{"preconditions":{"uid":"` + other + `"}}`},
	{name: "another revision, in a deletion", method: "DELETE", path: deployments + "/web",
		body: `{"preconditions":{"resourceVersion":"1"}}`},
	{name: "another name", method: "PUT", path: configmaps + "/a", body: `{"metadata":{"name":"b"}}`},
	{name: "another name, in a patch", method: "PATCH", path: configmaps + "/a", contentType: mergePatch,
		body: `{"metadata":{"name":"b"}}`},
	{name: "another namespace", method: "POST", path: configmaps,
		body: `{"metadata":{"name":"x","namespace":"default"}}`},
	{name: "no name", method: "POST", path: configmaps, body: `{"data":{"a":"b"}}`},
	{name: "a bad name", method: "POST", path: configmaps, body: `{"metadata":{"name":"Bad_Name"}}`},
	{name: "what is invalid in several ways", method: "POST", path: deployments,
		body: `{"metadata":{"name":"x"},"spec":{"replicas":-1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":` +
			`{"labels":{"a":"c"}},"spec":{"containers":[{"name":"c"}],"restartPolicy":"Never"}}}}`},
	{name: "what cannot be changed", method: "PATCH", path: deployments + "/web", contentType: mergePatch,
		body: `{"spec":{"selector":{"matchLabels":{"b":"c"}}}}`},
	{name: "what is not there", method: "GET", path: configmaps + "/absent"},
	{name: "what is not there, of a group", method: "GET", path: deployments + "/absent"},
	{name: "what is not there, in an update", method: "PUT", path: deployments + "/absent",
		body: deployment("absent", "")},
	{name: "what is not there, in a patch", method: "PATCH", path: configmaps + "/absent", contentType: mergePatch,
		body: `{}`},
	{name: "what is not there, in a deletion", method: "DELETE", path: configmaps + "/absent"},
	{name: "a resource that is not served", method: "GET", path: "/api/v1/namespaces/" + in + "/nonsense"},
	{name: "a group that is not served", method: "GET", path: "/apis/example.com/v1/things"},
	{name: "a subresource that is not served", method: "GET", path: configmaps + "/a/nonsense"},
	{name: "a method that is not allowed", method: "PUT", path: configmaps, body: `{}`},
	{name: "a method that is not allowed, of a subresource", method: "DELETE", path: pods + "/p/status"},
	{name: "a namespace that is not there", method: "POST", path: "/api/v1/namespaces/absent/configmaps",
		body: `{"metadata":{"name":"x"}}`},
	{name: "a namespace that is being deleted", method: "POST", body: `{"metadata":{"name":"x"}}`,
		path: "/api/v1/namespaces/" + terminating + "/configmaps"},
	{name: "a namespace that cannot be deleted", method: "DELETE", path: "/api/v1/namespaces/default"},
	{name: "a revision of the future", method: "GET", path: configmaps + "?resourceVersion=999999999"},
	{name: "a revision of the future, of one object", method: "GET", path: configmaps + "/a?resourceVersion=999999999"},
	{name: "a revision to list that is no number", method: "GET", path: configmaps + "?resourceVersion=x"},
	{name: "an exact revision that is not named", method: "GET", path: configmaps + "?resourceVersionMatch=Exact"},
	{name: "a match that there is not", method: "GET",
		path: configmaps + "?resourceVersion=5&resourceVersionMatch=Nonsense"},
	{name: "an exact revision of none in particular", method: "GET",
		path: configmaps + "?resourceVersion=0&resourceVersionMatch=Exact"},
	{name: "a match and a token", method: "GET",
		path: configmaps + "?resourceVersion=5&resourceVersionMatch=Exact&continue=x"},
	{name: "a token that is none", method: "GET", path: configmaps + "?limit=1&continue=nonsense"},
	{name: "a token and a revision", method: "GET", path: configmaps + "?limit=1&continue=x&resourceVersion=5"},
	{name: "a limit that is no number", method: "GET", path: configmaps + "?limit=x"},
	{name: "a label selector that is none", method: "GET", path: configmaps + "?labelSelector=a+in+b"},
	{name: "a field selector that is none", method: "GET", path: configmaps + "?fieldSelector=a"},
	{name: "a field that nobody selects by", method: "GET", path: configmaps + "?fieldSelector=data.k%3Dv"},
	{name: "a field that nobody selects pods by", method: "GET", path: pods + "?fieldSelector=spec.foo%3Dv"},
	{name: "a field that nobody selects autoscalers by", method: "GET",
		path: "/apis/autoscaling/v1/namespaces/" + in + "/horizontalpodautoscalers?fieldSelector=spec.foo%3Dv"},
	{name: "a field that nobody selects deployments by", method: "GET",
		path: deployments + "?fieldSelector=spec.foo%3Dv"},
	{name: "a field that nobody selects jobs by", method: "GET",
		path: "/apis/batch/v1/namespaces/" + in + "/jobs?fieldSelector=spec.foo%3Dv"},
	{name: "a field that nobody selects events by", method: "GET",
		path: "/apis/events.k8s.io/v1/namespaces/" + in + "/events?fieldSelector=spec.foo%3Dv"},
	{name: "a watch from no revision", method: "GET", path: configmaps + "?watch=true&resourceVersion=x"},
	{name: "a watch whose initial events have no match", method: "GET",
		path: configmaps + "?watch=true&sendInitialEvents=true"},
	{name: "initial events of a list", method: "GET", path: configmaps + "?sendInitialEvents=true"},
	{name: "an eviction that a budget refuses", method: "POST", path: pods + "/p/eviction",
		body: `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}`},
	{name: "an eviction of another pod", method: "POST", path: pods + "/p/eviction",
		body: `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"q"}}`},
	{name: "a binding of what is bound", method: "POST", path: pods + "/p/binding",
		body: `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"kind":"Node","name":"node-1"}}`},
	{name: "a dry run that there is not", method: "POST", path: configmaps + "?dryRun=Some",
		body: `{"metadata":{"name":"x"}}`},
	{name: "a validation that there is not", method: "POST", path: configmaps + "?fieldValidation=Some",
		body: `{"metadata":{"name":"x"}}`},
	{name: "a propagation that there is not", method: "DELETE", path: configmaps + "/a",
		body: `{"propagationPolicy":"Some"}`},
	{name: "two propagations", method: "DELETE", path: configmaps + "/a",
		body: `{"propagationPolicy":"Orphan","orphanDependents":true}`},
	{name: "options of another type", method: "DELETE", path: configmaps + "/a", body: `{"gracePeriodSeconds":"x"}`},
	{name: "a manager that cannot be", method: "POST", body: `{"metadata":{"name":"x"}}`,
		path: configmaps + "?fieldManager=" + strings.Repeat("x", 129)},
	{name: "a patch that is no JSON", method: "PATCH", path: configmaps + "/a", contentType: mergePatch, body: `{`},
	{name: "a test that fails", method: "PATCH", path: configmaps + "/a", contentType: jsonPatch,
		body: `[{"op":"test","path":"/data/k","value":"x"}]`},
	{name: "an apply by nobody", method: "PATCH", path: configmaps + "/a", contentType: applyPatch,
		body: `{"apiVersion":"v1","kind":"ConfigMap"}`},
	{name: "an apply of another kind", method: "PATCH", path: configmaps + "/a?fieldManager=m", contentType: applyPatch,
		body: `{"apiVersion":"v1","kind":"Secret"}`},
	{name: "an apply of who owns what", method: "PATCH", path: configmaps + "/a?fieldManager=m", contentType: applyPatch,
		body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"managedFields":[{}]}}`},
	{name: "an apply of what others own", method: "PATCH", path: configmaps + "/owned?fieldManager=two",
		contentType: applyPatch, body: `{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"2","b":"2","c":"2"}}`},
	{name: "an apply of one field that others own", method: "PATCH", path: configmaps + "/owned?fieldManager=two",
		contentType: applyPatch, body: `{"apiVersion":"v1","kind":"ConfigMap","data":{"b":"2"}}`},
	{name: "a patch by force that is no apply", method: "PATCH", path: configmaps + "/a?force=true",
		contentType: mergePatch, body: `{}`},
	{name: "no right", method: "GET", path: configmaps, as: "jane"},
	{name: "no right to one object", method: "GET", path: deployments + "/web", as: "jane"},
	{name: "no right to a subresource", method: "POST", path: pods + "/p/eviction", body: `{}`, as: "jane"},
	{name: "no right to what is in no namespace", method: "GET", path: "/api/v1/nodes", as: "jane"},
	{name: "no right to a path", method: "GET", path: "/metrics", as: "jane"},
	{name: "no right, and not there", method: "GET", path: configmaps + "/absent", as: "jane"},
	{name: "no such user", method: "GET", path: configmaps, stranger: true,
		header: map[string]string{"Authorization": "Bearer nonsense"}},
}

// What is refused is refused with the code, the reason, the details and the words of Kubernetes, by which client-go's
// helpers and people know what to do.
// spec: OBJ-2, OBJ-3, OBJ-6, OBJ-7, OBJ-9
func TestErrors(t *testing.T) {
	if match, err := filepath.Match(*only, "errors"); *only != "" && (err != nil || !match) {
		t.Skip("-only is about others")
	}
	s, bin := startServer(t)
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	all, err := differences(differencesFile())
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{server: s, bin: bin, known: all, seen: make([]bool, len(all))}
	for _, e := range prepared {
		if answer := e.do(t, config); !strings.HasPrefix(answer, "20") {
			t.Fatalf("%s %s: %s", e.method, e.path, answer)
		}
	}
	// Until the budget has counted the pods, evictions are refused for another reason.
	args := []string{"--kubeconfig", s.kubeconfig, "-n", in, "wait", "--timeout=60s"}
	for _, what := range [][]string{
		{"pod/p", "--for=jsonpath={.status.phase}=Running"}, {"pdb/all", "--for=jsonpath={.status.currentHealthy}=2"},
	} {
		out, err := command(t.Context(), environment(), filepath.Join(bin, "kubectl"),
			append(slices.Clone(args), what...)...)
		if err != nil {
			t.Fatalf("%v: %v: %s", what, err, out)
		}
	}
	blocks, err := parse(errorsFile)
	if err != nil && *golden == "" {
		t.Fatal(err)
	}
	if *golden != "" {
		blocks = []block{{text: []string{
			"What TestErrors asks for and is not given, in the words of Kubernetes' own API server (`make golden`): the code",
			"and the reason, client-go's helpers that know it, the message, the details, and headers.", "",
		}}}
	}
	for _, e := range refused {
		got := Normal(e.do(t, config))
		if *golden != "" {
			blocks = append(blocks, block{command: e.name, output: got})
			continue
		}
		i := slices.IndexFunc(blocks, func(b block) bool { return b.command == e.name })
		if i < 0 {
			t.Errorf("%s has nothing of %q; run: make golden", errorsFile, e.name)
			continue
		}
		r.compare(t, "errors", blocks[i], got)
	}
	r.unmet(t, "errors")
	switch {
	case *golden != "":
		if err := os.WriteFile(errorsFile, []byte(render(blocks)), 0o644); err != nil { //nolint:gosec // As elsewhere.
			t.Fatal(err)
		}
	case *accept:
		r.accept(t)
	}
}

// do makes the request, and tells all that the answer says.
func (e exchange) do(t *testing.T, config *rest.Config) string {
	t.Helper()
	config = rest.CopyConfig(config)
	if e.stranger {
		config = rest.AnonymousClientConfig(config)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, e.method, config.Host+e.path, strings.NewReader(e.body))
	if err != nil {
		t.Fatal(err)
	}
	if e.body != "" {
		r.Header.Set("Content-Type", jsonType)
	}
	if e.contentType != "" {
		r.Header.Set("Content-Type", e.contentType)
	}
	for name, value := range e.header {
		r.Header.Set(name, value)
	}
	if e.as != "" {
		r.Header.Set("Impersonate-User", e.as)
	}
	res, err := client.Do(r)
	if err != nil {
		t.Fatalf("%s: %v", e.name, err)
	}
	body, err := io.ReadAll(res.Body)
	if err := res.Body.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatalf("%s: %v", e.name, err)
	}
	return told(res, body)
}

// told is what an answer says about what went wrong.
func told(res *http.Response, body []byte) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d", res.StatusCode)
	st := &metav1.Status{}
	var event metav1.WatchEvent
	if json.Unmarshal(body, &event) == nil && event.Type == string(watch.Error) {
		out.WriteString(" in an event")
		body = event.Object.Raw
	}
	isStatus := json.Unmarshal(body, st) == nil && st.Kind == "Status"
	if isStatus {
		err := apierrors.FromObject(st)
		fmt.Fprintf(&out, " %s", st.Reason)
		if int(st.Code) != res.StatusCode {
			fmt.Fprintf(&out, ", in the body %d", st.Code)
		}
		for _, known := range helpers {
			if known.is(err) {
				out.WriteString(" " + known.name)
			}
		}
		fmt.Fprintf(&out, "\n%s: %s\n", st.Status, shortened(st.Message))
		if d := st.Details; d != nil && !reflect.DeepEqual(*d, metav1.StatusDetails{}) {
			fmt.Fprintf(&out, "of %q, group %q, kind %q, uid %q\n", d.Name, d.Group, d.Kind, d.UID)
			for _, c := range d.Causes {
				fmt.Fprintf(&out, "cause %s, field %q: %s\n", c.Type, c.Field, shortened(c.Message))
			}
			if d.RetryAfterSeconds > 0 {
				fmt.Fprintf(&out, "retry after %d s\n", d.RetryAfterSeconds)
			}
		}
	} else {
		out.WriteString("\n")
		if res.StatusCode >= 300 {
			fmt.Fprintf(&out, "%s\n", bytes.TrimSpace(body))
		}
	}
	for _, name := range []string{"Content-Type", "Retry-After", "Warning"} {
		for _, value := range res.Header.Values(name) {
			fmt.Fprintf(&out, "%s: %s\n", name, value)
		}
	}
	return out.String()
}

// shortened leaves out the middle of a text in which there is a whole object.
func shortened(text string) string {
	const long, kept = 1000, 80
	if len(text) <= long {
		return text
	}
	return text[:kept] + " ... " + text[len(text)-kept:]
}

// helpers are client-go's ways to know an error.
var helpers = []struct {
	name string
	is   func(error) bool
}{
	{"IsAlreadyExists", apierrors.IsAlreadyExists},
	{"IsBadRequest", apierrors.IsBadRequest},
	{"IsConflict", apierrors.IsConflict},
	{"IsForbidden", apierrors.IsForbidden},
	{"IsGone", apierrors.IsGone},
	{"IsInternalError", apierrors.IsInternalError},
	{"IsInvalid", apierrors.IsInvalid},
	{"IsMethodNotSupported", apierrors.IsMethodNotSupported},
	{"IsNotAcceptable", apierrors.IsNotAcceptable},
	{"IsNotFound", apierrors.IsNotFound},
	{"IsRequestEntityTooLarge", apierrors.IsRequestEntityTooLargeError},
	{"IsResourceExpired", apierrors.IsResourceExpired},
	{"IsServerTimeout", apierrors.IsServerTimeout},
	{"IsServiceUnavailable", apierrors.IsServiceUnavailable},
	{"IsStoreReadError", apierrors.IsStoreReadError},
	{"IsTimeout", apierrors.IsTimeout},
	{"IsTooManyRequests", apierrors.IsTooManyRequests},
	{"IsUnauthorized", apierrors.IsUnauthorized},
	{"IsUnexpectedServerError", apierrors.IsUnexpectedServerError},
	{"IsUnsupportedMediaType", apierrors.IsUnsupportedMediaType},
	{"SuggestsClientDelay", func(err error) bool { _, yes := apierrors.SuggestsClientDelay(err); return yes }},
	{"of a namespace that terminates", func(err error) bool {
		return apierrors.HasStatusCause(err, "NamespaceTerminating")
	}},
	{"of fields of others", func(err error) bool {
		return apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
	}},
	{"of a revision that is too large", func(err error) bool {
		return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
	}},
}
