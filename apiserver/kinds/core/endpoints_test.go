package core_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/test/kindtest"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/warning"

	corev1 "monoplane.dev/api/core/v1"
)

func endpoints(change func(*corev1.EndpointSubset)) *corev1.Endpoints {
	s := &corev1.EndpointSubset{
		Addresses: []*corev1.EndpointAddress{{Ip: "10.0.0.1", NodeName: proto.String("n"), Hostname: "a"}},
		Ports:     []*corev1.EndpointPort{{Port: 80}},
	}
	if change != nil {
		change(s)
	}
	e := &corev1.Endpoints{Metadata: kindtest.Meta("web", "default"), Subsets: []*corev1.EndpointSubset{s}}
	core.DefaultEndpoints(e)
	return e
}

// spec: WORK-4
func TestEndpoints(t *testing.T) {
	type subset = corev1.EndpointSubset
	for name, c := range map[string]struct {
		change func(*subset)
		want   []string
	}{
		"one":       {nil, nil},
		"headless":  {func(s *subset) { s.Ports = nil }, nil},
		"not ready": {func(s *subset) { s.Addresses, s.NotReadyAddresses = nil, s.Addresses }, nil},
		"no address": {func(s *subset) { s.Addresses = nil },
			[]string{"Required subsets[0]"}},
		"bad addresses": {func(s *subset) {
			s.Addresses = []*corev1.EndpointAddress{{Ip: "127.0.0.1"}, {Ip: "169.254.0.1", Hostname: "A"},
				{Ip: "::ffff:10.0.0.1"}, {Ip: "010.0.0.1"}}
			s.NotReadyAddresses = []*corev1.EndpointAddress{{Ip: "x", NodeName: proto.String("N")}, {Ip: "224.0.0.1"},
				{Ip: "::"}}
		}, []string{
			"Invalid subsets[0].addresses[0].ip", "Invalid subsets[0].addresses[1].hostname",
			"Invalid subsets[0].addresses[1].ip", "Invalid subsets[0].addresses[2].ip", "Invalid subsets[0].addresses[3].ip",
			"Invalid subsets[0].notReadyAddresses[0].ip", "Invalid subsets[0].notReadyAddresses[0].nodeName",
			"Invalid subsets[0].notReadyAddresses[0].ip", "Invalid subsets[0].notReadyAddresses[1].ip",
			"Invalid subsets[0].notReadyAddresses[2].ip",
		}},
		"bad ports": {func(s *subset) {
			s.Ports = []*corev1.EndpointPort{{Port: 0},
				{Name: "A", Port: 1, Protocol: "ICMP", AppProtocol: proto.String("a b")}}
		}, []string{"Required subsets[0].ports[0].name", "Invalid subsets[0].ports[0].port",
			"Invalid subsets[0].ports[1].name", "NotSupported subsets[0].ports[1].protocol",
			"Invalid subsets[0].ports[1].appProtocol"}},
	} {
		kindtest.Judge(t, name, core.ValidateEndpoints(endpoints(c.change)), c.want...)
		old := endpoints(func(s *subset) { s.Addresses[0].Ip = "10.9.9.9" })
		kindtest.Judge(t, name+", changed", core.ValidateEndpointsUpdate(endpoints(c.change), old), c.want...)
		kindtest.Judge(t, name+", kept", core.ValidateEndpointsUpdate(endpoints(c.change), endpoints(c.change)))
	}
}

func TestEndpointsWarnOfAddressesWrittenInAnotherWay(t *testing.T) {
	s := core.Endpoints(define.Config{}).Strategy
	odd := endpoints(func(s *corev1.EndpointSubset) {
		s.Addresses = []*corev1.EndpointAddress{{Ip: "fd00:0::1"}, {Ip: "fd00::1"}, {Ip: "x"}}
		s.NotReadyAddresses = []*corev1.EndpointAddress{{Ip: "FD00::2"}}
	})
	want := []string{
		`subsets[0].addresses[0].ip: IPv6 address "fd00:0::1" should be in RFC 5952 canonical format ("fd00::1")`,
		`subsets[0].notReadyAddresses[0].ip: IPv6 address "FD00::2" should be in RFC 5952 canonical format ("fd00::2")`,
	}
	ctx, created := warning.WithCollector(t.Context())
	if err := s.Admit(ctx, odd); err != nil {
		t.Fatal(err)
	}
	ctx, updated := warning.WithCollector(t.Context())
	if err := s.Resources[""].Authorize(ctx, &registry.Update{Live: odd, Next: odd}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*warning.Collector{"created": created, "updated": updated} {
		if got := c.Texts(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
}

// spec: CLI-3
func TestEndpointsAsKubectlShowsThem(t *testing.T) {
	table := core.Endpoints(define.Config{}).Strategy.Table
	addresses := func(ips ...string) []*corev1.EndpointAddress {
		var list []*corev1.EndpointAddress
		for _, ip := range ips {
			list = append(list, &corev1.EndpointAddress{Ip: ip})
		}
		return list
	}
	ports := []*corev1.EndpointPort{{Port: 80}, {Port: 443}}
	for want, subsets := range map[string][]*corev1.EndpointSubset{
		"<none>": nil,
		"":       {{NotReadyAddresses: addresses("10.0.0.1"), Ports: ports}},
		"10.0.0.1:80,[fd00::1]:80,10.0.0.1:443 + 1 more...": {{Addresses: addresses("10.0.0.1", "fd00::1"), Ports: ports}},
		"10.0.0.1,10.0.0.2,10.0.0.3":                        {{Addresses: addresses("10.0.0.1", "10.0.0.2", "10.0.0.3")}},
		"10.0.0.1:80,10.0.0.2,10.0.0.3 + 2 more...": {{Addresses: addresses("10.0.0.1"), Ports: ports[:1]},
			{Addresses: addresses("10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5")}},
	} {
		e := &corev1.Endpoints{Metadata: kindtest.Meta("web", "default"), Subsets: subsets}
		if got := table.Cells(e, time.Now()); got[1] != want {
			t.Errorf("%v, not %q", got, want)
		}
	}
}
