package deletion_test

import (
	"errors"
	"testing"
	"time"

	"monoplane.dev/apiserver/kinds/core/pod/deletion"
	"monoplane.dev/rules/precondition"
)

var (
	start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	user  = deletion.Actor{Role: deletion.User, Name: "jane"}
	agent = deletion.Actor{Role: deletion.Agent, Name: "system:node:n1", Node: "n1"}
	podgc = deletion.Actor{Role: deletion.PodGC, Name: "system:controller:podgc"}
	other = deletion.Actor{Role: deletion.Controller, Name: "system:controller:namespace"}
)

func ptr[T any](v T) *T { return &v }

func after(s int64) time.Time { return start.Add(time.Duration(s) * time.Second) }

// running is a pod on node n1 with the default grace.
func running() deletion.Pod {
	return deletion.Pod{Name: "web", UID: "u1", ResourceVersion: "7", Node: "n1", SpecGrace: ptr(int64(30))}
}

// with returns p as change leaves it.
func with(p deletion.Pod, change func(*deletion.Pod)) deletion.Pod {
	change(&p)
	return p
}

func marked(grace int64) deletion.Pod {
	p := running()
	p.Mark = &deletion.Mark{Deadline: after(grace), Grace: grace}
	return p
}

func TestDecide(t *testing.T) {
	unbound := func(p *deletion.Pod) { p.Node = "" }
	terminal := func(p *deletion.Pod) { p.Terminal = true }
	held := func(p *deletion.Pod) { p.Finalizers = true }
	grace := func(s int64) deletion.Request { return deletion.Request{Grace: &s} }

	for _, c := range []struct {
		name string
		pod  deletion.Pod
		req  deletion.Request
		now  time.Time
		want deletion.Decision
	}{
		// spec: DEL-1
		{"the pod's own grace", running(), deletion.Request{}, start,
			deletion.Decision{Outcome: deletion.Marked, Mark: deletion.Mark{Deadline: after(30), Grace: 30}, Begins: true}},
		{"a longer first grace is granted", running(), grace(90), start,
			deletion.Decision{Outcome: deletion.Marked, Mark: deletion.Mark{Deadline: after(90), Grace: 90}, Begins: true}},
		{"a negative grace counts as 1", running(), grace(-7), start,
			deletion.Decision{Outcome: deletion.Marked, Mark: deletion.Mark{Deadline: after(1), Grace: 1}, Begins: true}},
		{"deadlines are whole seconds", running(), grace(5), start.Add(999 * time.Millisecond),
			deletion.Decision{Outcome: deletion.Marked, Mark: deletion.Mark{Deadline: after(5), Grace: 5}, Begins: true}},
		{"no grace in an old object", with(running(), func(p *deletion.Pod) { p.SpecGrace = nil }), deletion.Request{},
			start,
			deletion.Decision{Outcome: deletion.Marked, Mark: deletion.Mark{Deadline: after(30), Grace: 30}, Begins: true}},

		// spec: DEL-2
		{"shortened, counted from the first request", marked(30), grace(10), after(4),
			deletion.Decision{Outcome: deletion.Marked, Mark: deletion.Mark{Deadline: after(10), Grace: 10}}},
		{"shortened into the past", marked(30), grace(10), after(25),
			deletion.Decision{Outcome: deletion.Marked, Mark: deletion.Mark{Deadline: after(25), Grace: 1}}},
		{"longer changes nothing", marked(30), grace(60), after(4),
			deletion.Decision{Outcome: deletion.Unchanged, Mark: deletion.Mark{Deadline: after(30), Grace: 30}}},
		{"equal changes nothing", marked(30), grace(30), after(4),
			deletion.Decision{Outcome: deletion.Unchanged, Mark: deletion.Mark{Deadline: after(30), Grace: 30}}},
		{"absent changes nothing", marked(30), deletion.Request{}, after(4),
			deletion.Decision{Outcome: deletion.Unchanged, Mark: deletion.Mark{Deadline: after(30), Grace: 30}}},
		{"negative while terminating counts as 1", marked(30), grace(-1), start,
			deletion.Decision{Outcome: deletion.Marked, Mark: deletion.Mark{Deadline: after(1), Grace: 1}}},
		{"one second cannot be shortened but by force", marked(1), grace(1), after(9),
			deletion.Decision{Outcome: deletion.Unchanged, Mark: deletion.Mark{Deadline: after(1), Grace: 1}}},

		// spec: DEL-3
		{"an unbound pod goes at once", with(running(), unbound), deletion.Request{}, start,
			deletion.Decision{Outcome: deletion.Removed, Mark: deletion.Mark{Deadline: start}, Begins: true}},
		{"a terminal pod goes at once", with(running(), terminal), grace(50), start,
			deletion.Decision{Outcome: deletion.Removed, Mark: deletion.Mark{Deadline: start}, Begins: true}},
		{"unbound with finalizers is held", with(with(running(), unbound), held), deletion.Request{}, start,
			deletion.Decision{Outcome: deletion.Marked, Mark: deletion.Mark{Deadline: start}, Begins: true}},
		{"terminal while terminating waits for its agent", with(marked(30), terminal), deletion.Request{}, after(40),
			deletion.Decision{Outcome: deletion.Unchanged, Mark: deletion.Mark{Deadline: after(30), Grace: 30}}},

		// spec: DEL-4
		{"forced", running(), grace(0), start,
			deletion.Decision{Outcome: deletion.Removed, Mark: deletion.Mark{Deadline: start}, Begins: true, Forced: true,
				Unconfirmed: true}},
		{"forced while terminating", marked(30), grace(0), after(3),
			deletion.Decision{Outcome: deletion.Removed, Mark: deletion.Mark{Deadline: after(3)}, Forced: true,
				Unconfirmed: true}},
		{"forced, but nothing ran", with(running(), unbound), grace(0), start,
			deletion.Decision{Outcome: deletion.Removed, Mark: deletion.Mark{Deadline: start}, Begins: true, Forced: true}},

		// spec: DEL-6
		{"finalizers hold a forced pod", with(running(), held), grace(0), start,
			deletion.Decision{Outcome: deletion.Marked, Mark: deletion.Mark{Deadline: start}, Begins: true, Forced: true,
				Unconfirmed: true}},
		{"a held pod stays as it is", with(marked(0), held), deletion.Request{}, after(5),
			deletion.Decision{Outcome: deletion.Unchanged, Mark: deletion.Mark{Deadline: start}}},
		{"a passed deadline removes nothing", marked(30), deletion.Request{}, after(1e6),
			deletion.Decision{Outcome: deletion.Unchanged, Mark: deletion.Mark{Deadline: after(30), Grace: 30}}},

		// spec: DEL-14
		{"0 in the spec is not force", with(running(), func(p *deletion.Pod) { p.SpecGrace = ptr(int64(0)) }),
			deletion.Request{}, start,
			deletion.Decision{Outcome: deletion.Marked, Mark: deletion.Mark{Deadline: after(1), Grace: 1}, Begins: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := deletion.Decide(c.pod, c.req, user, c.now)
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// spec: DEL-5
func TestPreconditions(t *testing.T) {
	for _, c := range []struct {
		name    string
		uid, rv *string
		refused bool
	}{
		{"uid holds", ptr("u1"), nil, false},
		{"uid of a predecessor", ptr("u0"), nil, true},
		{"empty uid", ptr(""), nil, true},
		{"revision holds", nil, ptr("7"), false},
		{"stale revision", ptr("u1"), ptr("6"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := deletion.Request{Grace: ptr(int64(0)), Expected: precondition.Expected{UID: c.uid, ResourceVersion: c.rv}}
			_, err := deletion.Decide(running(), req, user, start)
			var r *deletion.Refusal
			if errors.As(err, &r) != c.refused {
				t.Fatalf("err = %v, want refused %v", err, c.refused)
			}
			if c.refused && !r.Conflict {
				t.Errorf("a failed precondition is a conflict, got %v", err)
			}
		})
	}
}
