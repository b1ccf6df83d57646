package framework

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// nothing implements no extension point.
type nothing struct{}

func (nothing) Name() string { return "nothing" }

// A plugin takes part where it is enabled and nowhere else, and its place can differ from point to point.
// spec: SCHED-1
func TestEnabledAtSomePoints(t *testing.T) {
	const rest = ^(AtQueueSort | AtPreFilter | AtFilter | AtScore | AtPreScore | AtReserve) & (AtPostBind<<1 - 1)
	var log []string
	a := &spy{name: "a", log: &log, score: func(string) int64 { return 1 }}
	b := &spy{name: "b", log: &log, score: func(string) int64 { return 1 }}
	p, err := NewProfile("test", 0,
		Enabled{Plugin: a, Points: AtQueueSort | AtPreFilter | AtFilter | rest},
		Enabled{Plugin: b, Points: AtPreFilter | AtFilter | AtReserve},
		Enabled{Plugin: b, Points: AtPreScore | AtScore, Weight: 3},
		Enabled{Plugin: a, Points: AtPreScore | AtScore},
	)
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Explain(testPod("a", ""), twoNodes())
	if err != nil {
		t.Fatal(err)
	}
	p.Reserve(nil, nil, "x")
	p.PreBind(context.Background(), &CycleState{}, nil, "x")
	p.Bind(context.Background(), nil, nil, "x")
	const want = "a.PreFilter b.PreFilter a.Filter x b.Filter x a.Filter y b.Filter y b.PreScore a.PreScore " +
		"b.Score x b.Score y b.NormalizeScore a.Score x a.Score y a.NormalizeScore b.Reserve a.PreBind a.Bind a.PostBind"
	if got := strings.Join(log, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := fmt.Sprint(e.Nodes[0].Scores, e.Nodes[0].Total); got != "[{b 1 3} {a 1 1}] 4" {
		t.Errorf("scores %s", got)
	}
}

func TestBadPoints(t *testing.T) {
	var log []string
	a := &spy{name: "a", log: &log}
	const whole = AtPostBind<<1 - 1
	for want, plugins := range map[string][]Enabled{
		"plugin a is enabled twice": {{Plugin: a, Points: whole},
			{Plugin: a, Points: AtScore}},
		"plugin nothing does not implement Filter, Bind": {{Plugin: a},
			{Plugin: nothing{}, Points: AtFilter | AtBind}},
		"plugin a is enabled at Filter but not at PreFilter, which comes before it": {{Plugin: a,
			Points: whole &^ AtPreFilter}},
		"plugin a is enabled at Score but not at PreScore, which comes before it": {{Plugin: a,
			Points: whole &^ AtPreScore}},
		"no Bind plugin is enabled": {{Plugin: a, Points: whole &^ AtBind}},
		"no QueueSort plugin is enabled": {{Plugin: a,
			Points: whole &^ AtQueueSort}},
	} {
		_, err := NewProfile("x", 0, plugins...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for _, partial := range []Points{whole &^ AtFilter, whole &^ AtScore, whole &^ (AtFilter | AtPreFilter)} {
		if _, err := NewProfile("x", 0, Enabled{Plugin: a, Points: partial}); err != nil {
			t.Errorf("%s: %v", partial, err)
		}
	}
}
