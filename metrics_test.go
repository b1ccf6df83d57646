package monoplane_test

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"monoplane.dev"
)

// kubernetesMetrics returns the metrics of Kubernetes by name: stability, type, labels and buckets, as test/oracle has
// read them out of Kubernetes' own registration.
func kubernetesMetrics(t *testing.T) map[string][]string {
	t.Helper()
	data, err := os.ReadFile("test/oracle/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]string)
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 5 {
			out[f[0]] = f[1:]
		}
	}
	return out
}

// ours begin the names of metrics that Kubernetes has not, of its components and of others.
var ours = []string{"monoplane_", "go_", "process_", "promhttp_"}

// own are metrics of ours that lie beside those of Kubernetes, in whose place it has none.
var own = []string{
	"scheduler_nodes_evaluated_total", "scheduler_binding_conflicts_total", "garbagecollector_controller_actions_total",
	"garbagecollector_controller_invalid_owner_references_total", "garbagecollector_controller_graph_objects",
	"pv_controller_operations_total",
}

// Metrics that Kubernetes has are served under its names, with its types, labels and buckets, and say how stable they
// are there; the linter of Prometheus has nothing to say. What dashboards look for is there.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, monoplane.Config{Nodes: 1})
		get := func(path string) []byte {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://local"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.Transport().RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode >= 500 {
				t.Fatalf("%s: %d, %v\n%.300s", path, resp.StatusCode, err, body)
			}
			return body
		}
		create(t, c.Client(), newPod("p"))
		time.Sleep(time.Minute)
		before := parsed(t, get("/metrics"))["apiserver_request_total"]
		for _, path := range []string{"pods", "namespaces/default/pods/p", "namespaces/default/pods/q"} {
			get("/api/v1/" + path)
		}
		get("/readyz")
		families := map[string]*dto.MetricFamily{}
		for _, path := range []string{"/metrics", "/metrics/slis"} {
			text := get(path)
			problems, err := promlint.New(bytes.NewReader(text)).Lint()
			problems = slices.DeleteFunc(problems, func(p promlint.Problem) bool { return strings.HasPrefix(p.Metric, "go_") })
			if err != nil || len(problems) > 0 {
				t.Errorf("lint of %s: %v, %v", path, err, problems)
			}
			maps.Copy(families, parsed(t, text))
		}
		known := kubernetesMetrics(t)
		for _, name := range slices.Sorted(maps.Keys(families)) {
			if slices.ContainsFunc(ours, func(p string) bool { return strings.HasPrefix(name, p) }) ||
				slices.Contains(own, name) {
				continue
			}
			theirs := known[name]
			if theirs == nil {
				t.Errorf("Kubernetes has no metric %s", name)
				continue
			}
			got := described(families[name])
			if theirs[1] == "custom" { // Its collector says which type it is.
				got[1] = theirs[1]
			}
			if !slices.Equal(got, theirs) {
				t.Errorf("%s is\n%s, in Kubernetes\n%s", name, strings.Join(got, " "), strings.Join(theirs, " "))
			}
		}
		for _, name := range []string{
			"apiserver_request_total", "apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds",
			"apiserver_current_inflight_requests", "apiserver_longrunning_requests", "apiserver_response_sizes",
			"apiserver_storage_objects", "apiserver_resource_objects", "apiserver_storage_size_bytes",
			"apiserver_storage_events_received_total", "etcd_request_duration_seconds", "workqueue_depth",
			"workqueue_adds_total", "workqueue_queue_duration_seconds", "workqueue_work_duration_seconds",
			"scheduler_schedule_attempts_total", "scheduler_scheduling_attempt_duration_seconds", "scheduler_pending_pods",
			"scheduler_pod_scheduling_sli_duration_seconds", "scheduler_pod_scheduling_attempts",
			"kubernetes_healthcheck", "kubernetes_healthchecks_total",
		} {
			if families[name] == nil {
				t.Errorf("%s is missing", name)
			}
		}
		for _, labels := range []string{
			"GET /v1/pods/ resource 200", "GET /v1/pods/ resource 404", "LIST /v1/pods/ cluster 200",
		} {
			was := requestsOf(before, labels)
			if got := requestsOf(families["apiserver_request_total"], labels) - was; got != 1 {
				t.Errorf("%s: %v requests over REST, want 1", labels, got)
			}
		}
		for _, labels := range []string{"POST /v1/pods/ resource 201", "POST /v1/pods/binding resource 201"} {
			if got := requestsOf(before, labels); got != 1 {
				t.Errorf("%s: %v requests in the process, want 1", labels, got)
			}
		}
	})
}

func parsed(t *testing.T, text []byte) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// described returns a family as kubernetesMetrics does.
func described(f *dto.MetricFamily) []string {
	level, _, _ := strings.Cut(strings.TrimPrefix(f.GetHelp(), "["), "]")
	labels, buckets := []string{}, []string{}
	for _, l := range f.GetMetric()[0].GetLabel() {
		labels = append(labels, l.GetName())
	}
	for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
		buckets = append(buckets, strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64))
	}
	or := func(list []string) string {
		if len(list) == 0 {
			return "-"
		}
		return strings.Join(list, ",")
	}
	slices.Sort(labels)
	if n := len(buckets); n > 0 && buckets[n-1] == "+Inf" {
		buckets = buckets[:n-1]
	}
	return []string{level, strings.ToLower(f.GetType().String()), or(labels), or(buckets)}
}

// requestsOf returns how many requests of "VERB GROUP/VERSION/RESOURCE/SUBRESOURCE SCOPE CODE" were counted.
func requestsOf(f *dto.MetricFamily, labels string) (n float64) {
	for _, m := range f.GetMetric() {
		l := make(map[string]string)
		for _, pair := range m.GetLabel() {
			l[pair.GetName()] = pair.GetValue()
		}
		if l["verb"]+" "+l["group"]+"/"+l["version"]+"/"+l["resource"]+"/"+l["subresource"]+" "+l["scope"]+" "+
			l["code"] == labels && l["dry_run"] == "" && l["component"] == "apiserver" {
			n += m.GetCounter().GetValue()
		}
	}
	return n
}
