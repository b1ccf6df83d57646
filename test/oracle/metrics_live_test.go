//go:build kubernetes

package oracle

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// metricsFile has a line for each metric of Kubernetes: name, stability, type, labels and buckets. The tests of what is
// served read it.
const metricsFile = "testdata/metrics.txt"

// registered is a metric in the lists that Kubernetes makes of its own registrations.
type registered struct {
	Namespace      string    `json:"namespace"`
	Subsystem      string    `json:"subsystem"`
	Name           string    `json:"name"`
	Type           string    `json:"type"`
	StabilityLevel string    `json:"stabilityLevel"`
	Labels         []string  `json:"labels"`
	Buckets        []float64 `json:"buckets"`
}

// The recorded metrics are those that Kubernetes registers. make oracle records them anew.
func TestMetricsAreRecorded(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := make(map[string]string)
	for _, list := range []string{ // What is stable is told more exactly in the first.
		"testdata/stable-metrics-list.yaml", "documentation/documentation-list.yaml",
	} {
		data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "test", "instrumentation", list))
		if err != nil {
			t.Fatal(err)
		}
		var all []registered
		if err := yaml.Unmarshal(data, &all); err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			slices.Sort(m.Labels)
			parts := slices.DeleteFunc([]string{m.Namespace, m.Subsystem, m.Name}, func(s string) bool { return s == "" })
			if name := strings.Join(parts, "_"); lines[name] == "" {
				lines[name] = fmt.Sprintln(name, m.StabilityLevel, strings.ToLower(m.Type), joined(m.Labels),
					joined(bounds(m.Buckets)))
			}
		}
	}
	var want strings.Builder
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		want.WriteString(lines[name])
	}
	if *recording {
		if err := os.WriteFile(metricsFile, []byte(want.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(metricsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Errorf("%s is not what Kubernetes registers", metricsFile)
	}
}

func joined(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ",")
}

func bounds(list []float64) []string {
	slices.Sort(list)
	var out []string
	for _, b := range list {
		out = append(out, strconv.FormatFloat(b, 'g', -1, 64))
	}
	return out
}
