package host

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/client/inproc"
)

// received returns the number of things in each message of a stream, and all of them.
func received[M, T any](t *testing.T, stream grpc.ServerStreamingClient[M], err error, of func(*M) []T) ([]int, []T) {
	t.Helper()
	var sizes []int
	var all []T
	for err == nil {
		var m *M
		if m, err = stream.Recv(); err == nil {
			sizes, all = append(sizes, len(of(m))), append(all, of(m)...)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	return sizes, all
}

// A list that comes as a stream has what the list has, by the same filter, in several messages if it is long.
func TestListsInParts(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the records are the runtime's")
	n := newNode(t)
	s := inproc.NewServer(nil, nil)
	runtimeapi.RegisterRuntimeServiceServer(s, n.Runtime)
	runtimeapi.RegisterImageServiceServer(s, n.Runtime)
	defer s.Stop()
	c, images := runtimeapi.NewRuntimeServiceClient(s.Conn()), runtimeapi.NewImageServiceClient(s.Conn())
	sb := n.sandbox("pod")
	n.sandbox("another")
	ids := []string{n.run(sb, containerConfig("main", "/bin/sh", "-c", "exec sleep 1000"))}
	for i := range mostInPart {
		ids = append(ids, n.create(sb, containerConfig(fmt.Sprint("c", i), "/bin/true")))
	}

	containers, err := c.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{})
	sizes, list := received(t, containers, err, (*runtimeapi.StreamContainersResponse).GetContainers)
	var got []string
	for _, one := range list {
		got = append(got, one.GetId())
	}
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) || !slices.Equal(sizes, []int{mostInPart, 1}) {
		t.Errorf("containers %v in messages of %v; want %v", got, sizes, ids)
	}
	sandboxes, err := c.StreamPodSandboxes(t.Context(), &runtimeapi.StreamPodSandboxesRequest{
		Filter: &runtimeapi.PodSandboxFilter{Id: sb}})
	if _, list := received(t, sandboxes, err, (*runtimeapi.StreamPodSandboxesResponse).GetPodSandboxes); len(list) != 1 ||
		list[0].GetId() != sb {
		t.Errorf("one sandbox: %v", list)
	}
	stats, err := c.StreamContainerStats(t.Context(), &runtimeapi.StreamContainerStatsRequest{
		Filter: &runtimeapi.ContainerStatsFilter{PodSandboxId: sb}})
	_, running := received(t, stats, err, (*runtimeapi.StreamContainerStatsResponse).GetContainerStats)
	if len(running) != 1 || running[0].GetAttributes().GetMetadata().GetName() != "main" {
		t.Errorf("the container that runs: %v", running)
	}
	pods, err := c.StreamPodSandboxStats(t.Context(), &runtimeapi.StreamPodSandboxStatsRequest{
		Filter: &runtimeapi.PodSandboxStatsFilter{Id: sb}})
	_, used := received(t, pods, err, (*runtimeapi.StreamPodSandboxStatsResponse).GetPodSandboxStats)
	if len(used) != 1 || len(used[0].GetLinux().GetContainers()) != 1 {
		t.Errorf("the pod: %v", used)
	}
	metrics, err := c.StreamPodSandboxMetrics(t.Context(), &runtimeapi.StreamPodSandboxMetricsRequest{})
	if _, list := received(t, metrics, err,
		(*runtimeapi.StreamPodSandboxMetricsResponse).GetPodSandboxMetrics); len(list) != 2 {
		t.Errorf("metrics of both pods: %v", list)
	}
	named, err := images.StreamImages(t.Context(), &runtimeapi.StreamImagesRequest{
		Filter: &runtimeapi.ImageFilter{Image: &runtimeapi.ImageSpec{Image: ImageName}}})
	if _, list := received(t, named, err, (*runtimeapi.StreamImagesResponse).GetImages); len(list) != 1 ||
		list[0].GetId() != ImageName {
		t.Errorf("one image: %v", list)
	}
}

// Metrics say of pods and containers what their stats say, with as many values of labels as their descriptors have
// names for.
func TestMetrics(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "the records are the runtime's")
	n := newNode(t)
	sb := n.sandbox("pod")
	id := n.run(sb, containerConfig("main", "/bin/sh", "-c", "exec sleep 1000"))
	described, err := n.ListMetricDescriptors(t.Context(), &runtimeapi.ListMetricDescriptorsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string][]string{}
	for _, d := range described.GetDescriptors() {
		if labels[d.GetName()] != nil || d.GetHelp() == "" {
			t.Errorf("twice, or without help: %v", d)
		}
		labels[d.GetName()] = d.GetLabelKeys()
	}
	// values returns those of the metrics of one thing, which has these labels.
	values := func(all []*runtimeapi.Metric, want map[string]string) map[string]uint64 {
		out := map[string]uint64{}
		for _, m := range all {
			keys := labels[m.GetName()]
			if len(keys) == 0 || len(keys) != len(m.GetLabelValues()) {
				t.Errorf("labels %v, described as %v: %v", m.GetLabelValues(), keys, m)
				continue
			}
			for i, key := range keys {
				if has, told := want[key]; told && has != m.GetLabelValues()[i] {
					t.Errorf("%s of %s is %q, want %q", key, m.GetName(), m.GetLabelValues()[i], has)
				}
			}
			out[m.GetName()] = m.GetValue().GetValue()
		}
		return out
	}
	got, err := n.ListPodSandboxMetrics(t.Context(), &runtimeapi.ListPodSandboxMetricsRequest{})
	if err != nil || len(got.GetPodMetrics()) != 1 || len(got.GetPodMetrics()[0].GetContainerMetrics()) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	pod, of := got.GetPodMetrics()[0], sandboxConfig(n, "pod").GetMetadata()
	values(pod.GetMetrics(), map[string]string{"container": "", "id": sb, "pod": of.GetName(),
		"namespace": of.GetNamespace()})
	c := pod.GetContainerMetrics()[0]
	of1 := values(c.GetMetrics(), map[string]string{"container": "main", "id": id, "name": id, "pod": of.GetName(),
		"namespace": of.GetNamespace()})
	if of1["container_memory_working_set_bytes"] == 0 ||
		of1["container_start_time_seconds"] != uint64(n.status(id).GetStartedAt())/1e9 {
		t.Errorf("the container's: %v", of1)
	}
	if _, told := of1["container_cpu_usage_seconds_total"]; !told {
		t.Errorf("its time is not told: %v", of1)
	}
}

// What goes over the links of a pod is counted by each link, and its own link is told apart.
func TestParseLinks(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "it starts nothing")
	use := parseLinks(`Inter-|   Receive                                  |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:  900    9    0    0    0     0          0         0      900     9    0    0    0     0       0          0
  eth0: 1118   13    1    0    0     0          0         0 18446744073709551615 13 2 0 0     0       0          0
  net1:5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0
  odd: 1 2
`, 7)
	link := func(name string, n ...uint64) *runtimeapi.NetworkInterfaceUsage {
		v := func(i int) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n[i]} }
		return &runtimeapi.NetworkInterfaceUsage{Name: name, RxBytes: v(0), RxErrors: v(1), TxBytes: v(2), TxErrors: v(3)}
	}
	want := &runtimeapi.NetworkUsage{Timestamp: 7, DefaultInterface: link("eth0", 1118, 1, 1<<64-1, 2),
		Interfaces: []*runtimeapi.NetworkInterfaceUsage{link("net1", 5, 0, 6, 0)}}
	if !proto.Equal(use, want) {
		t.Errorf("got  %v\nwant %v", use, want)
	}
}
