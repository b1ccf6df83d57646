package scheduler_test

import (
	"fmt"
	"testing"

	"monoplane.dev/client"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
)

// onlooker is a plugin of another program that keeps nodes and has nothing against any.
type onlooker struct{ seen map[*framework.NodeInfo]int64 }

func (*onlooker) Name() string { return "Onlooker" }

func (o *onlooker) Filter(_ *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	o.seen[n] = n.Requested.MilliCPU
	return nil
}

// stage is a snapshot of ten nodes, on which a profile decides.
type stage struct {
	*testing.T
	profile  *framework.Profile
	snapshot *framework.Snapshot
	search   *framework.Searcher
}

func newStage(t *testing.T, more ...framework.Enabled) *stage {
	t.Helper()
	profile, err := framework.NewProfile("test", 0, append(scheduler.DefaultPlugins(client.New(nil)), more...)...)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t, profile, framework.NewSnapshot(), framework.NewSearcher(1)}
	for i := range 10 {
		n := newNode(fmt.Sprint("n", i), "cpu=8", "memory=64Gi", "pods=110")
		s.snapshot.Set(n.Metadata.Name, framework.NewNodeInfo(n.Metadata.Name, n))
	}
	return s
}

// place decides about a new pod and puts it on its node.
func (s *stage) place(i int) (node string) {
	s.Helper()
	p := newPod(fmt.Sprint("p", i), fmt.Sprintf("cpu=%dm", 100*(1+i%4)))
	p.Metadata.Uid = p.Metadata.Name
	pod := framework.NewPodInfo(p)
	d := s.profile.Schedule(&framework.CycleState{}, pod, s.snapshot, s.search)
	if d.Err != nil || d.Node == "" {
		s.Fatalf("pod %d: %+v", i, d)
	}
	s.snapshot.Set(d.Node, s.snapshot.Node(d.Node).WithPod(pod))
	return d.Node
}

// As long as all plugins are this module's, the next state of a node is written over the last one; one of another
// program has the nodes stay what they were. The decisions are the same.
func TestForeignPlugins(t *testing.T) {
	own := newStage(t)
	looking := &onlooker{map[*framework.NodeInfo]int64{}}
	both := newStage(t, framework.Enabled{Plugin: looking})
	first := own.snapshot.Node("n0")
	for i := range 200 {
		if a, b := own.place(i), both.place(i); a != b {
			t.Fatalf("pod %d: on %s, with a plugin that does nothing on %s", i, a, b)
		}
	}
	if own.snapshot.Node("n0") != first || first.Requested.MilliCPU == 0 {
		t.Error("the memory of a node is not used again: is a plugin of this module taken for another program's?")
	}
	for n, cpu := range looking.seen {
		if n.Requested.MilliCPU != cpu {
			t.Fatalf("%s was kept with %d in use, and has %d now", n.Name, cpu, n.Requested.MilliCPU)
		}
	}
	if len(looking.seen) < 200 {
		t.Errorf("only %d states of nodes were seen", len(looking.seen))
	}
}
