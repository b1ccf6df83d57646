package nodeagent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/summary"
)

// Types of documents.
const (
	textType = "text/plain; charset=utf-8"
	jsonType = "application/json"
)

// serveDocument answers with what kubelets serve at a path of their own.
func (a *Agent) serveDocument(ctx context.Context, ask *nodev1rpc.DocumentCall, send func([]byte) error) error {
	doc, err := a.document(ctx, ask)
	if err != nil {
		return err
	}
	data, err := proto.Marshal(doc)
	if err != nil {
		return err
	}
	const piece = 256 << 10
	for part := range slices.Chunk(data, piece) {
		if err := send(part); err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) document(ctx context.Context, ask *nodev1rpc.DocumentCall) (*nodev1rpc.Document, error) {
	var body []byte
	var err error
	kind := jsonType
	switch ask.GetPath() {
	case "/healthz":
		kind, body = textType, []byte("ok")
	case "/pods":
		body = a.podsDocument()
	case "/metrics":
		kind = summary.MetricsType
		body, err = a.metrics(ctx)
	case "/metrics/resource":
		kind = summary.MetricsType
		measured, failed := a.summary(ctx, true)
		if failed != nil {
			a.cfg.Logger.Warn("what pods use cannot be measured", "error", failed)
		}
		body, err = measured.Metrics()
	case "/metrics/cadvisor":
		kind = summary.MetricsType
		measured, failed := a.summary(ctx, false)
		if failed != nil {
			a.cfg.Logger.Warn("what pods use cannot be measured", "error", failed)
		}
		body, err = measured.Cadvisor()
	case "/metrics/probes":
		kind = summary.MetricsType
		body, err = summary.Text(a.probes())
	case "/stats/summary":
		var query url.Values
		if query, err = url.ParseQuery(ask.GetQuery()); err != nil {
			return nil, apierrors.New(apierrors.BadRequest, "the query of the URL is malformed: %v", err)
		}
		var measured *summary.Summary
		if measured, err = a.summary(ctx, query.Get("only_cpu_and_memory") == "true"); err == nil {
			body, err = json.MarshalIndent(measured, "", " ")
		}
	default:
		return nil, apierrors.New(apierrors.NotFound, "the agent of node %q serves no %s; it has /healthz, /pods, "+
			"/metrics, /metrics/cadvisor, /metrics/probes, /metrics/resource and /stats/summary", a.cfg.NodeName, ask.GetPath())
	}
	if err != nil {
		return nil, fmt.Errorf("%s of node %q: %w", strings.TrimPrefix(ask.GetPath(), "/"), a.cfg.NodeName, err)
	}
	return &nodev1rpc.Document{ContentType: kind, Body: body}, nil
}

// metrics returns the text of /metrics. What volumes hold is left out where it cannot be measured.
func (a *Agent) metrics(ctx context.Context) ([]byte, error) {
	measured, err := a.summary(ctx, false)
	if err != nil {
		a.cfg.Logger.Warn("what pods store cannot be measured", "error", err)
		return summary.Text(a.counts())
	}
	return summary.Text(a.counts(), newVolumeStats(measured))
}

// imageOf returns the image of a container.
func imageOf(spec *corev1.PodSpec, name string) string {
	for _, c := range slices.Concat(spec.GetInitContainers(), spec.GetContainers()) {
		if c.GetName() == name {
			return c.GetImage()
		}
	}
	for _, c := range spec.GetEphemeralContainers() {
		if c.GetEphemeralContainerCommon().GetName() == name {
			return c.GetEphemeralContainerCommon().GetImage()
		}
	}
	return ""
}

// here returns the workers of pods of which something is, or is to be, on this machine, in the order of their names.
func (a *Agent) here() []*worker {
	all := slices.DeleteFunc(a.list(), func(w *worker) bool {
		empty := false
		w.look(func(m *podstate.StateMachine) { empty = m.Empty() })
		return empty
	})
	slices.SortFunc(all, func(v, w *worker) int { return strings.Compare(name(v.pod()), name(w.pod())) })
	return all
}

// podsDocument returns the pods that run here, static ones among them, as the agent knows them.
func (a *Agent) podsDocument() []byte {
	list := &corev1.PodList{Metadata: &metav1.ListMeta{}}
	for _, w := range a.here() {
		list.Items = append(list.Items, w.pod())
	}
	return codec.AppendObject(nil, list)
}

// counts is a collector of how much runs here.
type counts struct {
	pods, containers, node *prometheus.Desc
	agent                  *Agent
}

func (a *Agent) counts() counts {
	return counts{
		agent: a,
		node: prometheus.NewDesc("kubelet_node_name", "[ALPHA] The node's name. The count is always 1.",
			[]string{"node"}, nil),
		pods: prometheus.NewDesc("kubelet_running_pods", "[ALPHA] Number of pods that have a running pod sandbox", nil,
			nil),
		containers: prometheus.NewDesc("kubelet_running_containers", "[ALPHA] Number of containers currently running",
			[]string{"container_state"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c counts) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.node
	ch <- c.pods
	ch <- c.containers
}

// Collect implements prometheus.Collector.
func (c counts) Collect(ch chan<- prometheus.Metric) {
	states := map[podstate.InstanceState]int{podstate.Created: 0, podstate.Running: 0, podstate.Exited: 0}
	pods := 0
	for _, w := range c.agent.here() {
		w.look(func(m *podstate.StateMachine) {
			if len(m.PodIPs()) > 0 {
				pods++
			}
			for _, name := range containerNames(m.Pod().GetSpec()) {
				if in, _, ok := m.Instance(name); ok {
					states[in.State]++
				}
			}
		})
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	gauge(c.node, 1, c.agent.cfg.NodeName)
	gauge(c.pods, pods)
	for state, n := range states {
		gauge(c.containers, n, state.String())
	}
}

// containerNames returns the names of all containers of a pod, those that run first in front.
func containerNames(spec *corev1.PodSpec) []string {
	var out []string
	for _, c := range slices.Concat(spec.GetInitContainers(), spec.GetContainers()) {
		out = append(out, c.GetName())
	}
	for _, c := range spec.GetEphemeralContainers() {
		out = append(out, c.GetEphemeralContainerCommon().GetName())
	}
	return out
}
