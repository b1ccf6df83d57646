package shim

import (
	"testing"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// What a child makes at once has the score that its container asks for, also where the shim has no right to lower
// scores: the child inherits it.
func TestChildrenInheritTheirScore(t *testing.T) {
	own, err := oomScoreAdj()
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{defaultScore: own, marker: sys.NewMarker(1)}
	for _, c := range []struct {
		req  shimwire.StartRequest
		want int
	}{
		{shimwire.StartRequest{SetOOMScoreAdj: true, OOMScoreAdj: 1000}, 1000},
		{shimwire.StartRequest{}, own},
	} {
		restore := p.dress(&container{req: c.req, marker: p.marker.Container(1)})
		if got, err := oomScoreAdj(); err != nil || got != c.want {
			t.Errorf("%+v: a child would inherit %d, %v", c.req, got, err)
		}
		restore()
		if got, err := oomScoreAdj(); err != nil || got != own {
			t.Errorf("%+v: the shim has %d afterwards, %v; before it had %d", c.req, got, err, own)
		}
	}
}
