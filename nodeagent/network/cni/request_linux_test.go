package cni

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types/create"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/oci"
)

// What plugins are asked outlives the process as it is.
func TestRequest(t *testing.T) {
	plugin, err := libcni.NetworkPluginConfFromBytes([]byte(`{"type":"bridge","mtu":1400}`))
	if err != nil {
		t.Fatal(err)
	}
	list := &libcni.NetworkConfigList{Name: "net", CNIVersion: "1.0.0", Plugins: []*libcni.PluginConfig{plugin}}
	r, err := request(list, oci.Sandbox{ID: "box", Config: &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "u-1"},
		Annotations: map[string]string{"kubernetes.io/ingress-bandwidth": "100M"},
		PortMappings: []*runtimeapi.PortMapping{{HostPort: 8080, ContainerPort: 80, HostIp: "10.0.0.1"}, {ContainerPort: 81},
			{HostPort: 53, ContainerPort: 5353, Protocol: runtimeapi.Protocol_UDP}},
	}}, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00::/64")})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"network":"net","cniVersion":"1.0.0","plugins":[{"type":"bridge","mtu":1400}],` +
		`"args":[["IgnoreUnknown","1"],["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAME","web"],` +
		`["K8S_POD_INFRA_CONTAINER_ID","box"],["K8S_POD_UID","u-1"]],"capabilities":{` +
		`"bandwidth":{"ingressRate":100000000,"ingressBurst":10000000},` +
		`"ipRanges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]],` +
		`"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp","hostIP":"10.0.0.1"},` +
		`{"hostPort":53,"containerPort":5353,"protocol":"udp"}]}}`
	if string(text) != want {
		t.Errorf("plugins are asked\n%s, not\n%s", text, want)
	}
	var again record
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if got, err := again.list(); err != nil || string(got.Plugins[0].Bytes) != string(plugin.Bytes) || got.Name != "net" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAddresses(t *testing.T) {
	const links = `"interfaces":[{"name":"cni0"},{"name":"eth0","sandbox":"/x"},{"name":"eth1","sandbox":"/x"}]`
	for ips, want := range map[string]string{
		`{"address":"10.1.0.2/24","interface":1}`:                                         "[10.1.0.2]",
		`{"address":"10.1.0.2/24"}`:                                                       "[10.1.0.2]",
		`{"address":"fd00::2/64","interface":1},{"address":"10.1.0.2/24","interface":1}`:  "[10.1.0.2 fd00::2]",
		`{"address":"10.1.0.2/24","interface":1},{"address":"10.1.0.3/24","interface":1}`: "[10.1.0.2]",
		`{"address":"10.2.0.2/24","interface":2},{"address":"10.1.0.2/24","interface":1}`: "[10.1.0.2]",
		`{"address":"10.1.0.1/24","interface":0}`:                                         "no address",
		``: "no address",
		`{"address":"10.1.0.1/24","interface":7}`: "the interface 7 of 3",
	} {
		result, err := create.CreateFromBytes([]byte(fmt.Sprintf(`{"cniVersion":"1.0.0",%s,"ips":[%s]}`, links, ips)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := addresses(result)
		if err == nil && fmt.Sprint(got) != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %s", ips, got, err, want)
		}
	}
}

func TestBurst(t *testing.T) {
	for rate, want := range map[uint64]uint64{0: 0, 1_000: 128 << 13, 1_000_000_000: 100_000_000, 1e15: 1<<32 - 1} {
		if got := burst(rate); got != want {
			t.Errorf("%d bits/s: %d bits at once, not %d", rate, got, want)
		}
	}
}
