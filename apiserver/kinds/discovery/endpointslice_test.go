package discovery_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/discovery"
	"monoplane.dev/apiserver/kinds/test/kindtest"
	"monoplane.dev/apiserver/validation"

	discoveryv1 "monoplane.dev/api/discovery/v1"
)

type slice = discoveryv1.EndpointSlice

func newSlice(change func(*slice)) *slice {
	s := &slice{
		Metadata: kindtest.Meta("web-1", "default"), AddressType: "IPv4",
		Endpoints: []*discoveryv1.Endpoint{{
			Addresses: []string{"10.0.0.1"}, NodeName: proto.String("n"), Hostname: proto.String("a"),
			Hints:              &discoveryv1.EndpointHints{ForZones: []*discoveryv1.ForZone{{Name: "z"}}},
			DeprecatedTopology: map[string]string{"kubernetes.io/hostname": "n"},
		}},
		Ports: []*discoveryv1.EndpointPort{{Port: proto.Int32(80)}},
	}
	if change != nil {
		change(s)
	}
	discovery.DefaultEndpointSlice(s)
	return s
}

func ofType(kind string, addresses ...string) func(*slice) {
	return func(s *slice) {
		s.AddressType, s.Endpoints[0].Addresses = kind, addresses
	}
}

// spec: WORK-4
func TestEndpointSlices(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*slice)
		want   []string
	}{
		"one":          {nil, nil},
		"IPv6":         {ofType("IPv6", "fd00::1"), nil},
		"names":        {ofType("FQDN", "example.com.", "a.b"), nil},
		"nothing":      {func(s *slice) { s.Endpoints, s.Ports = nil, nil }, nil},
		"no type":      {ofType("", "10.0.0.1"), []string{"Required addressType"}},
		"odd type":     {ofType("ipv4", "x"), []string{"NotSupported addressType"}},
		"no address":   {ofType("IPv4"), []string{"Required endpoints[0].addresses"}},
		"other family": {ofType("IPv4", "fd00::1"), []string{"Invalid endpoints[0].addresses"}},
		"another form": {ofType("IPv6", "fd00:0::1"), []string{"Invalid endpoints[0].addresses[0]"}},
		"not for others": {ofType("IPv4", "127.0.0.1", "0.0.0.0", "224.0.0.1", "1.2.3", "169.254.1.1"), []string{
			"Invalid endpoints[0].addresses[0]", "Invalid endpoints[0].addresses[1]", "Invalid endpoints[0].addresses[2]",
			"Invalid endpoints[0].addresses[3]", "Invalid endpoints[0].addresses[4]"}},
		"bad names": {ofType("FQDN", "", "a", "A.b"), []string{"Required endpoints[0].addresses[0]",
			"Invalid endpoints[0].addresses[1]", "Invalid endpoints[0].addresses[2]"}},
		"too many addresses": {ofType("IPv4", slices.Repeat([]string{"10.0.0.1"}, 101)...),
			[]string{"TooMany endpoints[0].addresses"}},
		"too many endpoints": {func(s *slice) { s.Endpoints = slices.Repeat(s.Endpoints, 1001) }, []string{"TooMany endpoints"}},
		"names of nodes": {func(s *slice) {
			s.Endpoints[0].NodeName, s.Endpoints[0].Hostname = proto.String("N"), proto.String("a.b")
		}, []string{"Invalid endpoints[0].nodeName", "Invalid endpoints[0].hostname"}},
		"bad hints": {func(s *slice) {
			s.Endpoints[0].Hints = &discoveryv1.EndpointHints{
				ForZones: []*discoveryv1.ForZone{{Name: "z"}, {Name: "z"}, {Name: "/"}},
				ForNodes: []*discoveryv1.ForNode{{Name: "n"}, {Name: "n"}, {Name: ""}},
			}
		}, []string{"Duplicate endpoints[0].hints.forZones[1].name", "Invalid endpoints[0].hints.forZones[2].name",
			"Duplicate endpoints[0].hints.forNodes[1].name", "Invalid endpoints[0].hints.forNodes[2].name"}},
		"too many hints": {func(s *slice) {
			s.Endpoints[0].Hints.ForNodes = make([]*discoveryv1.ForNode, 9)
		}, []string{"TooMany endpoints[0].hints.forNodes"}},
		"bad ports": {func(s *slice) {
			s.Ports = []*discoveryv1.EndpointPort{{}, {}, {Name: proto.String("A"), Protocol: proto.String("ICMP"),
				AppProtocol: proto.String("a b")}}
		}, []string{"Duplicate ports[1].name", "Invalid ports[2].name", "NotSupported ports[2].protocol",
			"Invalid ports[2].appProtocol"}},
	} {
		kindtest.Judge(t, name, discovery.ValidateEndpointSlice(newSlice(c.change)), c.want...)
		next := newSlice(c.change)
		old := &slice{Metadata: next.Metadata, AddressType: next.AddressType}
		kindtest.Judge(t, name+", changed", discovery.ValidateEndpointSliceUpdate(next, old), c.want...)
	}
	kindtest.Judge(t, "another type",
		discovery.ValidateEndpointSliceUpdate(newSlice(ofType("IPv6", "fd00::1")), newSlice(nil)), "Invalid addressType")
	stale := newSlice(ofType("IPv4", "127.0.0.1"))
	kindtest.Judge(t, "endpoints that stay",
		discovery.ValidateEndpointSliceUpdate(stale, newSlice(ofType("IPv4", "127.0.0.1"))))
}

func TestDefaultsOfEndpointSlices(t *testing.T) {
	s := newSlice(nil)
	e, port := s.Endpoints[0], s.Ports[0]
	if e.Conditions == nil || e.DeprecatedTopology != nil {
		t.Errorf("an endpoint without conditions, or with what v1 drops: %v", e)
	}
	if port.Name == nil || port.GetProtocol() != "TCP" {
		t.Errorf("a port without defaults: %v", port)
	}
}

// The generation counts what consumers look at. spec: OBJ-5
func TestGenerationOfEndpointSlices(t *testing.T) {
	spec := discovery.EndpointSlice(define.Config{}).Strategy.Spec
	for name, c := range map[string]struct {
		change  func(*slice)
		counted bool
	}{
		"nothing":    {func(*slice) {}, false},
		"annotation": {func(s *slice) { s.Metadata.Annotations = map[string]string{"a": "b"} }, false},
		"label":      {func(s *slice) { s.Metadata.Labels = map[string]string{"a": "b"} }, true},
		"endpoint":   {func(s *slice) { s.Endpoints[0].Conditions.Ready = proto.Bool(true) }, true},
		"port":       {func(s *slice) { s.Ports[0].Port = proto.Int32(81) }, true},
	} {
		s := newSlice(nil)
		c.change(s)
		if got := !validation.Equal(spec(s), spec(newSlice(nil))); got != c.counted {
			t.Errorf("%s: counted is %v", name, got)
		}
	}
}

func TestEndpointSlicesOfNamesAreWarnedOf(t *testing.T) {
	warn := discovery.EndpointSlice(define.Config{}).Strategy.Warn
	if got := warn(newSlice(nil), nil); len(got) != 0 {
		t.Errorf("addresses: %q", got)
	}
	got := warn(newSlice(ofType("FQDN", "a.b")), nil)
	if len(got) != 1 || got[0] != "spec.addressType: FQDN endpoints are deprecated" {
		t.Errorf("names: %q", got)
	}
}

// spec: CLI-3
func TestEndpointSlicesAsKubectlShowsThem(t *testing.T) {
	table := discovery.EndpointSlice(define.Config{}).Strategy.Table
	many := newSlice(func(s *slice) {
		s.Endpoints, s.Ports = nil, nil
		for i := range 5 {
			s.Endpoints = append(s.Endpoints, &discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}})
		}
		s.Ports = []*discoveryv1.EndpointPort{{Name: proto.String("web")}, {Port: proto.Int32(80)}}
	})
	for _, c := range []struct {
		s    *slice
		want []any
	}{
		{newSlice(nil), []any{"web-1", "IPv4", "80", "10.0.0.1"}},
		{many, []any{"web-1", "IPv4", "web,80", "10.0.0.1,10.0.0.2,10.0.0.3 + 2 more..."}},
		{newSlice(func(s *slice) { s.Endpoints, s.Ports = nil, nil }), []any{"web-1", "IPv4", "<unset>", "<unset>"}},
	} {
		if got := table.Cells(c.s, time.Now()); !slices.Equal(got[:4], c.want) {
			t.Errorf("%v, not %v", got, c.want)
		}
	}
}
