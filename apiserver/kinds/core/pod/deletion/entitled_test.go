package deletion_test

import (
	"errors"
	"testing"

	"monoplane.dev/apiserver/kinds/core/pod/deletion"
	"monoplane.dev/rules/precondition"
)

// spec: DEL-7, DEL-8, DEL-11, GC-1, GC-2, GC-4
func TestEntitled(t *testing.T) {
	it := precondition.Expected{UID: ptr("u1")}
	force := deletion.Request{Grace: ptr(int64(0)), Expected: it}
	forceAny := deletion.Request{Grace: ptr(int64(0))}
	gracefully := deletion.Request{Expected: it}
	finished := with(marked(30), func(p *deletion.Pod) { p.Terminal = true })
	mirror := with(running(), func(p *deletion.Pod) { p.Mirror = true })
	unbound := with(running(), func(p *deletion.Pod) { p.Node = "" })
	terminal := with(running(), func(p *deletion.Pod) { p.Terminal = true })
	elsewhere := func(p deletion.Pod) deletion.Pod { p.Node = "n2"; return p }
	keyed := func(p deletion.Pod) deletion.Pod { p.NodeKey = "k1"; return p }
	agentWith := func(key string) deletion.Actor { a := agent; a.NodeKey = key; return a }

	for _, c := range []struct {
		name  string
		by    deletion.Actor
		pod   deletion.Pod
		req   deletion.Request
		ok    bool
		guard bool
	}{
		{"user forces", user, running(), forceAny, true, false},
		{"nobody", deletion.Actor{Name: "x"}, running(), gracefully, false, false},

		{"agent completes", agent, finished, force, true, false},
		{"agent without uid", agent, finished, forceAny, false, false},
		{"agent before the terminal phase", agent, marked(30), force, false, false},
		{"agent of another node", agent, elsewhere(finished), force, false, false},
		{"agent, unbound pod", agent, with(finished, func(p *deletion.Pod) { p.Node = "" }), force, false, false},
		{"agent without a node", deletion.Actor{Role: deletion.Agent}, with(finished, func(p *deletion.Pod) { p.Node = "" }),
			force, false, false},
		{"agent, pod not marked", agent, terminal, force, false, false},
		{"agent begins", agent, running(), gracefully, false, false},
		{"agent begins on a terminal pod", agent, terminal, gracefully, false, false},
		{"agent shortens", agent, finished, deletion.Request{Grace: ptr(int64(1)), Expected: it}, false, false},
		{"agent drops a mirror", agent, mirror, force, true, false},
		{"agent drops another node's mirror", agent, elsewhere(mirror), force, false, false},
		{"agent drops a mirror without uid", agent, mirror, forceAny, false, false},
		{"agent of the same machine", agentWith("k1"), keyed(finished), force, true, false},
		{"agent of another machine", agentWith("k2"), keyed(finished), force, false, false},
		{"agent of an unknown machine", agent, keyed(finished), force, false, false},

		{"podgc, node gone", podgc, running(), force, true, true},
		{"podgc, terminating, node gone", podgc, marked(30), force, true, true},
		{"podgc, node gone, without uid", podgc, running(), forceAny, false, false},
		{"podgc, never bound, terminating", podgc, with(marked(30), func(p *deletion.Pod) { p.Node = "" }), force, true,
			false},
		{"podgc, never bound, alive", podgc, unbound, force, false, false},
		{"podgc, terminal", podgc, terminal, force, true, false},
		{"podgc, failed by itself", podgc, with(terminal, func(p *deletion.Pod) { p.NodeLost = true }), force, true, true},
		{"podgc begins", podgc, running(), gracefully, true, false},

		{"controller begins", other, running(), gracefully, true, false},
		{"controller shortens", other, marked(30), deletion.Request{Grace: ptr(int64(5)), Expected: it}, true, false},
		{"controller without uid", other, running(), deletion.Request{}, false, false},
		{"controller forces", other, running(), force, false, false},
		{"controller forces an unbound pod", other, unbound, force, false, false},
		{"controller forces a terminal pod", other, terminal, force, false, false},
		{"controller forces a finished pod", other, finished, force, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := deletion.Decide(c.pod, c.req, c.by, start)
			if (err == nil) != c.ok {
				t.Fatalf("err = %v, want allowed %v", err, c.ok)
			}
			var r *deletion.Refusal
			if err != nil && (!errors.As(err, &r) || r.Conflict) {
				t.Errorf("want a refusal that is no conflict, got %#v", err)
			}
			if d.NodeGone != c.guard {
				t.Errorf("guarded by the node's absence: %v, want %v", d.NodeGone, c.guard)
			}
		})
	}
}
