package summary_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/summary"
)

func n(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }

// sample is a node with two pods; of the second one nothing is known but its name.
func sample() *summary.Summary {
	at := time.Unix(1_700_000_000, 0)
	of := func(seconds int64, cpu, memory uint64) summary.Container {
		return summary.Container{
			CPU: summary.CPUOf(&runtimeapi.CpuUsage{Timestamp: at.Unix()*1e9 + seconds*1e9, UsageCoreNanoSeconds: n(cpu)}, 7),
			Memory: summary.MemoryOf(&runtimeapi.MemoryUsage{Timestamp: at.UnixNano(), WorkingSetBytes: n(memory),
				RssBytes: n(0)}),
			Swap: summary.SwapOf(&runtimeapi.SwapUsage{Timestamp: at.UnixNano(), SwapUsageBytes: n(1),
				SwapAvailableBytes: n(9)}),
		}
	}
	a, b := of(1, 2_500_000_000, 10), of(2, 500_000_000, 20)
	a.Name, a.StartTime, b.Name = "a", summary.Time{Time: at.Add(-time.Minute)}, "b"
	p := summary.Pod{Ref: summary.Reference{Name: "p", Namespace: "ns", UID: "u"}, Containers: []summary.Container{a, b}}
	p.Add()
	empty := summary.Pod{Ref: summary.Reference{Name: "q", Namespace: "ns", UID: "v"}, Containers: []summary.Container{}}
	empty.Add()
	return &summary.Summary{
		Node: summary.Node{Name: "node",
			CPU:    &summary.CPU{Time: summary.Time{Time: at}, CoreNanoSeconds: summary.Known(3e9)},
			Memory: &summary.Memory{Time: summary.Time{Time: at}, WorkingSet: summary.Known(5), RSS: summary.Known(-1)}},
		Pods: []summary.Pod{p, empty},
	}
}

func TestJSON(t *testing.T) {
	got, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"node":{"nodeName":"node","startTime":null,"cpu":{"time":"2023-11-14T22:13:20Z",` +
			`"usageCoreNanoSeconds":3000000000},"memory":{"time":"2023-11-14T22:13:20Z","workingSetBytes":5}},"pods":[`,
		`{"podRef":{"name":"q","namespace":"ns","uid":"v"},"startTime":null,"containers":[]}]}`,
		// Both containers together, at the later time. What is 0 is not what is not known.
		`"cpu":{"time":"2023-11-14T22:13:22Z","usageNanoCores":14,"usageCoreNanoSeconds":3000000000},"memory":{` +
			`"time":"2023-11-14T22:13:20Z","workingSetBytes":30,"rssBytes":0},"swap":{"time":"2023-11-14T22:13:20Z",` +
			`"swapAvailableBytes":18,"swapUsageBytes":2}}`,
		`{"name":"b","startTime":null,"cpu":{`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
}

func TestMetrics(t *testing.T) {
	got, err := sample().Metrics()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total 3 1700000000000\n",
		"\nnode_memory_working_set_bytes 5 1700000000000\n",
		`container_cpu_usage_seconds_total{container="a",namespace="ns",pod="p"} 2.5 1700000001000` + "\n",
		`container_start_time_seconds{container="a",namespace="ns",pod="p"} 1.69999994e+09` + "\n# HELP",
		`container_swap_limit_bytes{container="b",namespace="ns",pod="p"} 10 1700000000000` + "\n",
		`pod_cpu_usage_seconds_total{namespace="ns",pod="p"} 3 1700000002000` + "\n# HELP",
		`pod_memory_working_set_bytes{namespace="ns",pod="p"} 30 1700000000000` + "\n# HELP",
		"\nresource_scrape_error 0\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	var none *summary.Summary
	if got, err := none.Metrics(); err != nil || !strings.HasSuffix(string(got), "\nresource_scrape_error 1\n") {
		t.Errorf("%s, %v", got, err)
	}
}

// What dashboards know from cAdvisor has its names and labels, with the time at which it was measured.
func TestCadvisor(t *testing.T) {
	s := sample()
	s.Pods[0].Containers[0].ID, s.Pods[0].Containers[0].Image = "1", "i"
	s.Pods[0].Network = summary.NetworkOf(&runtimeapi.NetworkUsage{Timestamp: 1_700_000_000e9,
		DefaultInterface: &runtimeapi.NetworkInterfaceUsage{Name: "eth0", RxBytes: n(5)},
		Interfaces:       []*runtimeapi.NetworkInterfaceUsage{{Name: "eth0", RxBytes: n(5)}}})
	got, err := s.Cadvisor()
	if err != nil {
		t.Fatal(err)
	}
	const of = `container="a",cpu="total",id="1",image="i",name="1",namespace="ns",pod="p"`
	for _, want := range []string{
		"# TYPE container_cpu_usage_seconds_total counter\ncontainer_cpu_usage_seconds_total{" + of +
			"} 2.5 1700000001000\n",
		`container_memory_rss{container="b",id="",image="",name="",namespace="ns",pod="p"} 0 1700000000000` + "\n",
		`container_memory_working_set_bytes{container="a",id="1",image="i",name="1",namespace="ns",pod="p"} 10 `,
		`container_network_receive_bytes_total{container="",id="",image="",interface="eth0",name="",namespace="ns",` +
			`pod="p"} 5 1700000000000` + "\n",
		"\ncontainer_scrape_error 0\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if problems, err := promlint.New(strings.NewReader(string(got))).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", err, problems)
	}
	if got, err := (*summary.Summary)(nil).Cadvisor(); err != nil || !strings.Contains(string(got), "_scrape_error 1\n") {
		t.Errorf("what cannot be measured is told as\n%s, %v", got, err)
	}
}
